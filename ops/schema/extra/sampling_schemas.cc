// Activations that draw random numbers.
#include "absl/strings/str_cat.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status CheckAxis(InferContext& context, const TensorType& x) {
  return AxisFromAttr(context, "axis", x.dims).status();
}

absl::Status CheckSlopes(InferContext& context) {
  const double lower = context.attrs().Float("lower"), upper = context.attrs().Float("upper");
  if (lower <= upper) return absl::OkStatus();
  return context.AttrError("lower", absl::StrCat("at most ", upper, " (upper)"),
                           absl::StrCat(lower));
}

}  // namespace

void AddSamplingSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("gumbel_softmax", "X -> Out")
                  .Attr("axis", -1)
                  .Attr("hard", false)
                  .Attr("temperature", 1.0f, range::Above(0))
                  .With(Trait::kSideEffect)
                  .Infer(LikeXAlongAxis("axis"))
                  .Batch({batch::DrawBy(batch::Along("X", "axis")), Powers::kOwn})
                  .Pir(),
              {{"Out"}, {"Out"}, {"X"}},
              InOrder({IfKnown("Out", CheckAxis), OutputsLike("Out", {"Out@GRAD"})}));
  schemas->Add(OpSchema("rrelu", "X -> Noise~, Out")
                   .Attr("is_test", false)
                   .Attr("lower", 0.125f, range::Between(0, 1))
                   .Attr("upper", 1.0f / 3, range::Between(0, 1))
                   .With(Trait::kSideEffect)
                   .Infer(InOrder({CheckSlopes, OutputsLike("X")}))
                   .Batch({batch::RandomizedRelu, Powers::kOwn})
                   .Pir("-> out, noise"));
  schemas->Add(OpSchema("rrelu_grad", "Noise, Out@GRAD, X -> X@GRAD")
                   .Infer(OutputsLike("X", {"Noise", "Out@GRAD"})));
}

}  // namespace weft
