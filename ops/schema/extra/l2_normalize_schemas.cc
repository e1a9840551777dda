// Rows scaled to the length 1.
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferNorm(InferContext& context, const TensorType& x) {
  if (x.dims.empty()) return context.InputError("X", "at least one dimension");
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisFromAttr(context, "axis", x.dims));
  TensorType norm = x;
  norm.dims[axis] = 1;
  context.SetOutput("Norm", norm);
  context.SetOutput("Out", x);
  return absl::OkStatus();
}

}  // namespace

void AddL2NormalizeSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("norm", "X -> Norm~, Out")
                  .RequiredAttr("axis", 0)
                  .Attr("epsilon", 1e-10f)
                  .Infer(IfKnown("X", InferNorm))
                  .Batch({batch::Along("X", "axis")})
                  .Pir("-> out, norm"),
              {{"Norm", "X"}, {"Out"}, {"X"}});
}

}  // namespace weft
