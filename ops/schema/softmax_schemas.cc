// Softmax and its logarithm.
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status CheckLogSoftmaxAxis(InferContext& context, const TensorType& out) {
  return AxisFromAttr(context, "axis", out.dims).status();
}

// Unlike log_softmax, softmax takes no scalars.
absl::Status CheckSoftmaxAxis(InferContext& context, const TensorType& type) {
  return ResolveAxis(context, "axis", type.dims.size()).status();
}

}  // namespace

void AddSoftmaxSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("log_softmax", "X -> Out")
                  .Attr("axis", -1)
                  .Infer(LikeXAlongAxis("axis"))
                  .Batch({batch::Along("X", "axis")})
                  .Pir(),
              {{"Out"}, {"Out"}, {"X"}},
              InOrder({SameType("Out", "Out@GRAD"), IfKnown("Out", CheckLogSoftmaxAxis),
                       OutputsLike("Out")}));
  AddWithGrad(schemas,
              OpSchema("softmax", "X -> Out")
                  .Attr("axis", -1)
                  .Infer(InOrder({IfKnown("X", CheckSoftmaxAxis), OutputsLike("X")}))
                  .Batch({batch::Along("X", "axis")})
                  .Pir(),
              {{"Out"}, {"Out"}, {"X"}, /*optional=*/false},
              InOrder({IfKnown("Out", CheckSoftmaxAxis), OutputsLike("Out", {"Out@GRAD"})}));
}

}  // namespace weft
