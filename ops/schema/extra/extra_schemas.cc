#include "ops/schema/extra/families.h"

namespace weft {

void AddExtraSchemas(OpSchemaTable* schemas) {
  const auto add_all = [schemas](auto... add) { (add(schemas), ...); };
  add_all(AddDenseAlgebraSchemas, AddDiagonalSchemas, AddProductSchemas, AddSpecialFunctionSchemas,
          AddNormalizationSchemas, AddSamplingSchemas, AddDeformableConvSchemas,
          AddFractionalPoolSchemas, AddGridSampleSchemas, AddImageSchemas, AddInterpolateSchemas,
          AddPadSchemas, AddPaddle1LayerSchemas, AddPaddle1Schemas, AddPixelShuffleSchemas,
          AddUnfoldSchemas, AddYoloSchemas, AddIndexingSchemas, AddLabelMetricsSchemas,
          AddSequenceSchemas, AddClassWeightsSchemas, AddCvmSchemas, AddBroadcastTensorsSchemas,
          AddModelAverageSchemas, AddRollSchemas, AddSparsifySchemas, AddSecondGradientsSchemas);
}

}  // namespace weft
