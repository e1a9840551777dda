// Builds the ops that passes insert.
#ifndef WEFT_TRANSPILER_PASSES_OP_BUILDER_H_
#define WEFT_TRANSPILER_PASSES_OP_BUILDER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
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

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_OP_BUILDER_H_
