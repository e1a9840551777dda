// Activations that draw random numbers.
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {

void AddSamplingSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("gumbel_softmax", "X -> Out")
                  .Attr("axis", -1)
                  .Attr("hard", false)
                  .Attr("temperature", 1.0f)
                  .With(Trait::kSideEffect)
                  .Infer(LikeXAlongAxis("axis"))
                  .Batch({batch::DrawBy(batch::Along("X", "axis")), Powers::kOwn})
                  .Pir(),
              {{"Out"}, {"Out"}, {"X"}}, OutputsLike("Out", {"Out@GRAD"}));
  schemas->Add(OpSchema("rrelu", "X -> Noise~, Out")
                   .Attr("is_test", false)
                   .Attr("lower", 0.125f)
                   .Attr("upper", 1.0f / 3)
                   .With(Trait::kSideEffect)
                   .Infer(OutputsLike("X"))
                   .Batch({batch::RandomizedRelu, Powers::kOwn})
                   .Pir("-> out, noise"));
  schemas->Add(OpSchema("rrelu_grad", "Noise, Out@GRAD, X -> X@GRAD")
                   .Infer(OutputsLike("X", {"Noise", "Out@GRAD"})));
}

}  // namespace weft
