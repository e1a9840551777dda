#include "ops/cpu/extra/families.h"

namespace weft {

void AddExtraKernels(KernelTable* table) {
  AddBilinearTensorProductKernels(table);
  AddCrossKernels(table);
  AddDenseAlgebraKernels(table);
  AddDiagonalKernels(table);
  AddDistKernels(table);
  AddEinsumKernels(table);
  AddKronKernels(table);
  AddSecondGradientKernels(table);
  AddDataNormKernels(table);
  AddGumbelSoftmaxKernels(table);
  AddL2NormalizeKernels(table);
  AddLrnKernels(table);
  AddMaxoutKernels(table);
  AddRenormKernels(table);
  AddRreluKernels(table);
  AddSpectralNormKernels(table);
  AddDeformableConvKernels(table);
  AddGridSampleKernels(table);
  AddInterpolateKernels(table);
  AddPadKernels(table);
  AddPixelShuffleKernels(table);
  AddRoiPoolingKernels(table);
  AddTemporalShiftKernels(table);
  AddUnfoldKernels(table);
  AddUnpoolKernels(table);
  AddYoloKernels(table);
  AddBinCountKernels(table);
  AddCtcKernels(table);
  AddGatherTreeKernels(table);
  AddRowConvKernels(table);
  AddSearchSortedKernels(table);
  AddSegmentPoolKernels(table);
  AddUniqueKernels(table);
  AddCvmKernels(table);
  AddHierarchicalSigmoidKernels(table);
  AddNceKernels(table);
  AddShardIndexKernels(table);
  AddBroadcastTensorsKernels(table);
  AddModelAverageKernels(table);
  AddMultiplexKernels(table);
  AddRollKernels(table);
}

}  // namespace weft
