#include "ops/gpu/families.h"
#include "ops/kernel.h"

namespace weft {

const KernelTable& GpuKernels() {
  static const KernelTable* const table = [] {
    auto* table = new KernelTable;
    AddGpuActivationKernels(table);
    AddGpuCopyKernels(table);
    AddGpuCreationKernels(table);
    AddGpuElementwiseKernels(table);
    AddGpuLossKernels(table);
    AddGpuMatMulKernels(table);
    AddGpuOptimizerKernels(table);
    AddGpuReduceKernels(table);
    return table;
  }();
  return *table;
}

}  // namespace weft
