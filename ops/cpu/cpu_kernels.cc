#include "ops/cpu/families.h"
#include "ops/kernel.h"

namespace weft {

const KernelTable& CpuKernels() {
  static const KernelTable* const table = [] {
    auto* table = new KernelTable;
    AddActivationKernels(table);
    AddCoalesceTensorKernels(table);
    AddCopyKernels(table);
    AddCreationKernels(table);
    AddElementwiseKernels(table);
    AddMulKernels(table);
    AddOptimizerKernels(table);
    AddRandomKernels(table);
    AddReduceKernels(table);
    AddScaleKernels(table);
    AddSoftmaxWithCrossEntropyKernels(table);
    return table;
  }();
  return *table;
}

}  // namespace weft
