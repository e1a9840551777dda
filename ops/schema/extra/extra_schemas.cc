#include "ops/schema/extra/families.h"

namespace weft {

void AddExtraSchemas(OpSchemaTable* schemas) {
  AddBilinearTensorProductSchemas(schemas);
  AddCrossSchemas(schemas);
  AddDenseAlgebraSchemas(schemas);
  AddDiagonalSchemas(schemas);
  AddDistSchemas(schemas);
  AddEinsumSchemas(schemas);
  AddKronSchemas(schemas);
  AddSpecialFunctionSchemas(schemas);
  AddDataNormSchemas(schemas);
  AddGumbelSoftmaxSchemas(schemas);
  AddL2NormalizeSchemas(schemas);
  AddLrnSchemas(schemas);
  AddMaxoutSchemas(schemas);
  AddRenormSchemas(schemas);
  AddRreluSchemas(schemas);
  AddSpectralNormSchemas(schemas);
  AddDeformableConvSchemas(schemas);
  AddFractionalPoolSchemas(schemas);
  AddGridSampleSchemas(schemas);
  AddInterpolateSchemas(schemas);
  AddPadSchemas(schemas);
  AddPaddle1Schemas(schemas);
  AddPixelShuffleSchemas(schemas);
  AddRoiPoolingSchemas(schemas);
  AddTemporalShiftSchemas(schemas);
  AddUnfoldSchemas(schemas);
  AddUnpoolSchemas(schemas);
  AddYoloSchemas(schemas);
  AddBincountSchemas(schemas);
  AddCtcSchemas(schemas);
  AddFrameSchemas(schemas);
  AddGatherTreeSchemas(schemas);
  AddRowConvSchemas(schemas);
  AddSearchsortedSchemas(schemas);
  AddSegmentPoolSchemas(schemas);
  AddUniqueSchemas(schemas);
  AddClassWeightsSchemas(schemas);
  AddCvmSchemas(schemas);
  AddShardIndexSchemas(schemas);
  AddBroadcastTensorsSchemas(schemas);
  AddModelAverageSchemas(schemas);
  AddMultiplexSchemas(schemas);
  AddRollSchemas(schemas);
  AddSparsifySchemas(schemas);
  AddSecondGradientsSchemas(schemas);
}

}  // namespace weft
