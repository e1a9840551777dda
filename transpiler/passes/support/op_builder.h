// Ops that passes insert.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_OP_BUILDER_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_OP_BUILDER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

using NewSlots = std::vector<std::pair<std::string, std::vector<std::string>>>;  // to variables
using NewAttrs = std::vector<std::pair<std::string, AttrValue>>;

// An op, independent of the dialect.
struct NewOp {
  std::string type;
  NewSlots inputs, outputs;
  NewAttrs attrs;
  int role = 0;
  // The only number of ranks for which the op is right. The weft dialect writes it as attribute
  // kNumRanksAttr (ops/schema/op_attrs.h).
  absl::optional<int> nranks = absl::nullopt;
  // The ranks that take part, if not all: attribute kGroupRanksAttr. The weft dialect only.
  std::vector<int> group_ranks = {};
  // Attributes that no schema has (ops/schema/weft_attrs.h), for the weft dialect.
  NewAttrs weft_attrs = {};
};

// Adds attribute kGroupRanksAttr, at its place in the order of names, and sets ring_id.
void SetRingOfGroup(int ring, const std::vector<int>& ranks, pb::OpDesc* op);

// An op that reads `variables` as X and rewrites them as Out.
NewOp InPlaceOp(const std::string& type, const std::vector<std::string>& variables, NewAttrs attrs,
                int role, absl::optional<int> nranks = absl::nullopt);

// out = value, in every element.
NewOp FillOp(const std::string& out, DType dtype, const Dims& dims, double value, int role);
NewOp CastOp(const std::string& x, DType from, const std::string& out, DType to, int role);
NewOp ScaleOp(const std::string& x, const std::string& out, double factor, int role);
// An op that computes Out from X and Y.
NewOp BinaryOp(const std::string& type, const std::string& x, const std::string& y,
               const std::string& out, int role);

// The op as a message, with slots and attributes in the order of their names, use_mkldnn first.
// kWeft: the slots and attributes of `op`, and op_role. kPaddle: as Paddle's Python writes an op,
// with all slots of the schema except optional outputs that are not given, all attributes of the
// schema with their defaults, and the bookkeeping attributes; without what only Paddle 3 has.
// CHECK-fails for an unknown type, slot or attribute, and if a required attribute is missing.
pb::OpDesc BuildOp(const NewOp& op, Dialect dialect = Dialect::kWeft);

// An op that is inserted many times with different variables. Builds the attributes, which are most
// of the cost, once:
//
//   OpTemplate assign(BuildOp({"assign", {{"X", {}}}, {{"Out", {}}}, {}, role}));
//   for (...) rewriter.Append(0, assign.Over({from}, {to}));
class OpTemplate {
 public:
  explicit OpTemplate(pb::OpDesc op) : op_(std::move(op)) {}

  // Replaces the variables of a slot. CHECK-fails if the op has no such slot.
  // O(slots + variables).
  OpTemplate& In(absl::string_view slot, absl::Span<const std::string> variables);
  OpTemplate& Out(absl::string_view slot, absl::Span<const std::string> variables);
  // The op from X to Out.
  const pb::OpDesc& Over(absl::Span<const std::string> x, absl::Span<const std::string> out) {
    return In("X", x).Out("Out", out).op();
  }
  const pb::OpDesc& InPlace(absl::Span<const std::string> variables) {
    return Over(variables, variables);
  }

  // Valid until the next change.
  const pb::OpDesc& op() const { return op_; }

 private:
  pb::OpDesc op_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_OP_BUILDER_H_
