#include "ops/cpu/families.h"
#include "ops/kernel.h"

namespace weft {

const KernelTable& CpuKernels() {
  static const KernelTable* const table = [] {
    auto* table = new KernelTable;
    AddActivationKernels(table);
    AddAdamKernels(table);
    AddClipKernels(table);
    AddComparisonKernels(table);
    AddConcatKernels(table);
    AddCoalesceTensorKernels(table);
    AddCopyKernels(table);
    AddCreationKernels(table);
    AddElementwiseKernels(table);
    AddLookupTableKernels(table);
    AddMatMulKernels(table);
    AddNormKernels(table);
    AddOptimizerKernels(table);
    AddRandomKernels(table);
    AddReduceKernels(table);
    AddReshapeKernels(table);
    AddScaleKernels(table);
    AddSigmoidCrossEntropyKernels(table);
    AddSoftmaxKernels(table);
    AddSoftmaxWithCrossEntropyKernels(table);
    AddSparseSumKernels(table);
    AddSumKernels(table);
    AddViewKernels(table);
    return table;
  }();
  return *table;
}

}  // namespace weft
