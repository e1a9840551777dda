// Paths of a beam search.
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_checks.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferGatherTree(InferContext& context) {
  const TensorType* ids = context.Input("Ids");
  if (ids == nullptr) return absl::OkStatus();
  if (!IsIndex(ids->dtype) || ids->dims.size() != 3) {
    return context.InputError("Ids", "int64 or int32 numbers [steps, batch, beams]");
  }
  context.SetOutput("Out", *ids);
  return absl::OkStatus();
}

}  // namespace

void AddGatherTreeSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("gather_tree")
                   .In("Ids")
                   .In("Parents")
                   .Out("Out")
                   .Infer(InOrder({SameType("Ids", "Parents"), InferGatherTree})));
}

}  // namespace weft
