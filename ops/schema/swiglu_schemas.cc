// The gated unit of feed-forward layers. Its slots are in lower case, as Paddle 3 writes them.
#include "absl/strings/str_cat.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Without y, x has both: the halves of its last dimension.
absl::Status InferSwiglu(InferContext& context, const TensorType& x) {
  TensorType out = x;
  if (!context.HasInput("y")) {
    if (x.dims.empty() || x.dims.back() % 2 == 1) {
      return context.InputError("x", "a last dimension of two halves");
    }
    if (out.dims.back() != -1) out.dims.back() /= 2;
  }
  context.SetOutput("out", out);
  return absl::OkStatus();
}

}  // namespace

void AddSwigluSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("swiglu", "x, y? -> out")
                  .Infer(InOrder({SameType("x", "y"), IfKnown("x", InferSwiglu)}))
                  .Batch({batch::Swiglu})
                  .Pir(),
              {{"x", "y"}, {"out"}, {"x", "y"}});
}

}  // namespace weft
