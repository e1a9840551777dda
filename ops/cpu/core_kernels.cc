#include "ops/cpu/families.h"

namespace weft {

void AddCoreKernels(KernelTable* table) {
  AddActivationKernels(table);
  AddClipKernels(table);
  AddComparisonKernels(table);
  AddCopyKernels(table);
  AddCumulativeKernels(table);
  AddElementwiseKernels(table);
  AddOrderStatisticsKernels(table);
  AddPreluKernels(table);
  AddReduceKernels(table);
  AddScaleKernels(table);
  AddSumKernels(table);
  AddWhereKernels(table);
  AddConcatSplitKernels(table);
  AddCreationKernels(table);
  AddGatherScatterKernels(table);
  AddOneHotKernels(table);
  AddRandomKernels(table);
  AddReshapeKernels(table);
  AddSeedKernels(table);
  AddSetValueKernels(table);
  AddStridedViewKernels(table);
  AddConvKernels(table);
  AddDropoutKernels(table);
  AddLookupTableKernels(table);
  AddMatMulKernels(table);
  AddNormKernels(table);
  AddPoolKernels(table);
  AddRnnKernels(table);
  AddLogSoftmaxKernels(table);
  AddLossKernels(table);
  AddMetricKernels(table);
  AddSigmoidCrossEntropyKernels(table);
  AddSoftmaxKernels(table);
  AddSoftmaxWithCrossEntropyKernels(table);
  AddAdamKernels(table);
  AddAmpKernels(table);
  AddCoalesceTensorKernels(table);
  AddOptimizerKernels(table);
  AddSparseSumKernels(table);
  AddPrintKernels(table);
}

}  // namespace weft
