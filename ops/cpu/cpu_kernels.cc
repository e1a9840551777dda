#include "ops/cpu/families.h"
#include "ops/kernel.h"

namespace weft {

const KernelTable& CpuKernels() {
  static const KernelTable* const table = [] {
    auto* table = new KernelTable;
    AddActivationKernels(table);
    AddAdamKernels(table);
    AddAlongKernels(table);
    AddAmpKernels(table);
    AddAverageKernels(table);
    AddClipKernels(table);
    AddCoalesceTensorKernels(table);
    AddComparisonKernels(table);
    AddConditionKernels(table);
    AddConvKernels(table);
    AddCopyKernels(table);
    AddCreationKernels(table);
    AddCtcKernels(table);
    AddCvmKernels(table);
    AddDataNormKernels(table);
    AddDeformableConvKernels(table);
    AddDenseAlgebraKernels(table);
    AddDropoutKernels(table);
    AddEinsumKernels(table);
    AddElementwiseKernels(table);
    AddGeometryKernels(table);
    AddIndexKernels(table);
    AddHierarchicalSigmoidKernels(table);
    AddLikeKernels(table);
    AddLookupTableKernels(table);
    AddLossKernels(table);
    AddLrnKernels(table);
    AddMatMulKernels(table);
    AddMetricKernels(table);
    AddNoiseKernels(table);
    AddNormKernels(table);
    AddOptimizerKernels(table);
    AddPoolKernels(table);
    AddRandomKernels(table);
    AddPrintKernels(table);
    AddReduceKernels(table);
    AddRegionsKernels(table);
    AddResampleKernels(table);
    AddRnnKernels(table);
    AddRowConvKernels(table);
    AddSampledClassesKernels(table);
    AddScaleKernels(table);
    AddSearchKernels(table);
    AddSecondGradientKernels(table);
    AddSeedKernels(table);
    AddSegmentKernels(table);
    AddSigmoidCrossEntropyKernels(table);
    AddSoftmaxKernels(table);
    AddSoftmaxWithCrossEntropyKernels(table);
    AddSparseSumKernels(table);
    AddSpectralNormKernels(table);
    AddSumKernels(table);
    AddViewKernels(table);
    AddYoloKernels(table);
    return table;
  }();
  return *table;
}

}  // namespace weft
