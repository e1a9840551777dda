#include "ops/cpu/extra/families.h"

namespace weft {

void AddExtraKernels(KernelTable* table) {
  for (AddFamily* add : {AddClassLossKernels,    AddClickThroughKernels, AddDeformableConvKernels,
                         AddDenseAlgebraKernels, AddDiagonalKernels,     AddExtraActivationKernels,
                         AddExtraMoveKernels,    AddExtraNormKernels,    AddFractionalPoolKernels,
                         AddImageCopyKernels,    AddIndexingKernels,     AddLabelMetricKernels,
                         AddMedianKernels,       AddModelAverageKernels, AddPaddle1Kernels,
                         AddPaddle1LayerKernels, AddProductKernels,      AddResamplingKernels,
                         AddRoiPoolingKernels,   AddSearchKernels,       AddSecondGradientKernels,
                         AddSequenceKernels,     AddSparsifyKernels,     AddSpecialFunctionKernels,
                         AddYoloKernels}) {
    add(table);
  }
}

}  // namespace weft
