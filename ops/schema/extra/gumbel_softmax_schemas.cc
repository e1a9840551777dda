// Samples of a relaxed categorical distribution.
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
void AddGumbelSoftmaxSchemas(OpSchemaTable* schemas) {
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
}

}  // namespace weft
