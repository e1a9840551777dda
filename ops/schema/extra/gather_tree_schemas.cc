// Paths of a beam search.
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status CheckIds(InferContext& context, const TensorType& ids) {
  if (IsIndex(ids.dtype) && ids.dims.size() == 3) return absl::OkStatus();
  return context.InputError("Ids", "int64 or int32 numbers [steps, batch, beams]");
}

}  // namespace

void AddGatherTreeSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("gather_tree", "Ids, Parents -> Out")
                   .Infer(InOrder(
                       {SameType("Ids", "Parents"), IfKnown("Ids", CheckIds), OutputsLike("Ids")}))
                   .Batch(batch::Unrelated(batch::kNotNeeded)));
}

}  // namespace weft
