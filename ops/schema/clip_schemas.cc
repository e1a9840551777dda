// Limits elements and norms.
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {

void AddClipSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("clip", "Max{max}, Min{min}, X -> Out")
                  .RequiredAttr("max", 0.0f)
                  .RequiredAttr("min", 0.0f)
                  .With(Trait::kElementwise, Trait::kRowSplittable)
                  .Infer(OutputsLike("X"))
                  .Pir("(x, @min, @max)"),
              {{"X"}, {"Out"}, {"X"}, /*optional=*/false}, OutputsLike("X", {"Out@GRAD"}));
  schemas->Add(OpSchema("clip_by_norm", "X -> Out")
                   .RequiredAttr("max_norm", 0.0f, range::Above(0))
                   .Infer(OutputsLike("X"))
                   .Rows(RowsRule::kMergesFirst)
                   .Batch(batch::Unrelated(batch::kWholeResult))
                   .Pir());
}

}  // namespace weft
