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
  AddReduceKernels(table);
  AddSumKernels(table);
  AddSwigluKernels(table);
  AddWhereKernels(table);
  AddConcatSplitKernels(table);
  AddCreationKernels(table);
  AddGatherScatterKernels(table);
  AddPutAlongAxisKernels(table);
  AddRandomKernels(table);
  AddStridedViewKernels(table);
  AddBatchNormKernels(table);
  AddConvKernels(table);
  AddDropoutKernels(table);
  AddLookupTableKernels(table);
  AddMatMulKernels(table);
  AddNormKernels(table);
  AddPoolKernels(table);
  AddRnnKernels(table);
  AddLossKernels(table);
  AddMetricKernels(table);
  AddSoftmaxKernels(table);
  AddAdamKernels(table);
  AddAmpKernels(table);
  AddCoalesceTensorKernels(table);
  AddOptimizerKernels(table);
  AddPaddle3OptimizerKernels(table);
  AddPrintKernels(table);
}

}  // namespace weft
