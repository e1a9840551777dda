#include "ops/schema/extra/families.h"

namespace weft {

void AddExtraSchemas(OpSchemaTable* schemas) {
  AddDenseAlgebraSchemas(schemas);
  AddDiagonalSchemas(schemas);
  AddProductSchemas(schemas);
  AddSpecialFunctionSchemas(schemas);
  AddNormalizationSchemas(schemas);
  AddSamplingSchemas(schemas);
  AddDeformableConvSchemas(schemas);
  AddFractionalPoolSchemas(schemas);
  AddGridSampleSchemas(schemas);
  AddImageSchemas(schemas);
  AddInterpolateSchemas(schemas);
  AddPadSchemas(schemas);
  AddPaddle1Schemas(schemas);
  AddPixelShuffleSchemas(schemas);
  AddUnfoldSchemas(schemas);
  AddYoloSchemas(schemas);
  AddIndexingSchemas(schemas);
  AddSequenceSchemas(schemas);
  AddClassWeightsSchemas(schemas);
  AddCvmSchemas(schemas);
  AddBroadcastTensorsSchemas(schemas);
  AddModelAverageSchemas(schemas);
  AddRollSchemas(schemas);
  AddSparsifySchemas(schemas);
  AddSecondGradientsSchemas(schemas);
}

}  // namespace weft
