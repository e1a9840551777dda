// The p-norm of a difference.
#include "absl/strings/str_cat.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferDist(InferContext& context, const TensorType& x, const TensorType& y) {
  if (!BroadcastDims(x.dims, y.dims).has_value()) {
    return context.InputError(
        "Y", absl::StrCat("dimensions that broadcast with ", DimsToString(x.dims)));
  }
  context.SetOutput("Out", {x.dtype, {}});
  return absl::OkStatus();
}

}  // namespace

void AddDistSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("dist", "X, Y -> Out")
                  .Attr("p", 2.0f)
                  .Infer(InOrder({SameDType("X", "Y"), IfKnown("X", "Y", InferDist)}))
                  .Batch(batch::Unrelated(batch::kWholeResult))
                  .Pir(),
              {{"Out", "X", "Y"}, {"Out"}, {"X", "Y"}});
}

}  // namespace weft
