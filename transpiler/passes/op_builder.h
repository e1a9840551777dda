// Builds the ops that passes insert.
#ifndef WEFT_TRANSPILER_PASSES_OP_BUILDER_H_
#define WEFT_TRANSPILER_PASSES_OP_BUILDER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/schema/op_schema.h"
#include "proto/framework.pb.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// What an inserted op is, apart from its spelling.
struct NewOp {
  std::string type;
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs;  // slot, variables
  std::vector<std::pair<std::string, std::vector<std::string>>> outputs;
  std::vector<std::pair<std::string, AttrValue>> attrs;
  int role = 0;
  // The op is right for so many ranks only: attribute kNumRanksAttr (ops/schema/op_attrs.h), in the
  // weft dialect.
  absl::optional<int> nranks = absl::nullopt;
};

// The op as a message. Slots and attributes are written in the order of their names, use_mkldnn
// first.
// kWeft: the slots and attributes of `op`, and op_role. kPaddle: as Paddle's Python writes an op:
// all slots of the schema, also empty ones (but no optional output that is not given), all
// attributes of the schema with their defaults, and the bookkeeping attributes. Dies on a type,
// slot or attribute that has no schema, and where a required attribute is not given.
paddle::framework::proto::OpDesc BuildOp(const NewOp& op, Dialect dialect);

// An op that is inserted many times, over other variables each time. Building an op costs as much
// as its attributes; here they are built once:
//
//   OpTemplate assign(BuildOp({"assign", {{"X", {}}}, {{"Out", {}}}, {}, role}, dialect));
//   for (...) rewriter.Append(0, assign.In("X", {from}).Out("Out", {to}).op());
class OpTemplate {
 public:
  explicit OpTemplate(paddle::framework::proto::OpDesc op) : op_(std::move(op)) {}

  // Replaces the variables of a slot. Dies where the op has no such slot. O(slots + variables).
  OpTemplate& In(absl::string_view slot, absl::Span<const std::string> variables);
  OpTemplate& Out(absl::string_view slot, absl::Span<const std::string> variables);

  // Changes with the next In or Out.
  const paddle::framework::proto::OpDesc& op() const { return op_; }

 private:
  paddle::framework::proto::OpDesc op_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_OP_BUILDER_H_
