#include "ops/gpu/families.h"
#include "ops/kernel.h"

namespace weft {

const KernelTable& GpuKernels() {
  static const KernelTable* const table = [] {
    auto* table = new KernelTable;
    AddGpuActivationKernels(table);
    AddGpuAmpKernels(table);
    AddGpuClipKernels(table);
    AddGpuCoalesceTensorKernels(table);
    AddGpuComparisonKernels(table);
    AddGpuConvKernels(table);
    AddGpuCopyKernels(table);
    AddGpuCreationKernels(table);
    AddGpuDropoutKernels(table);
    AddGpuElementwiseKernels(table);
    AddGpuGatherScatterKernels(table);
    AddGpuLossKernels(table);
    AddGpuMatMulKernels(table);
    AddGpuNormKernels(table);
    AddGpuOptimizerKernels(table);
    AddGpuPaddle3OptimizerKernels(table);
    AddGpuPoolKernels(table);
    AddGpuPreluKernels(table);
    AddGpuSwigluKernels(table);
    AddGpuReduceKernels(table);
    AddGpuSoftmaxKernels(table);
    AddGpuSumKernels(table);
    AddGpuViewKernels(table);
    AddGpuWhereKernels(table);
    AddGpuRowKernels(table);
    AddGpuRowUpdateKernels(table);
    return table;
  }();
  return *table;
}

}  // namespace weft
