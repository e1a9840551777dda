// The families of GPU kernels: each adds its kernels to the table.
#ifndef WEFT_OPS_GPU_FAMILIES_H_
#define WEFT_OPS_GPU_FAMILIES_H_

#include "ops/kernel.h"

namespace weft {

// Adds the kernels of one file.
using AddFamily = void(KernelTable* table);

AddFamily AddGpuActivationKernels, AddGpuAmpKernels, AddGpuClipKernels, AddGpuCoalesceTensorKernels,
    AddGpuComparisonKernels, AddGpuConvKernels, AddGpuCopyKernels, AddGpuCreationKernels,
    AddGpuDropoutKernels, AddGpuElementwiseKernels, AddGpuGatherScatterKernels, AddGpuLossKernels,
    AddGpuMatMulKernels, AddGpuNormKernels, AddGpuOptimizerKernels, AddGpuPaddle3OptimizerKernels,
    AddGpuPoolKernels, AddGpuPreluKernels, AddGpuReduceKernels, AddGpuSoftmaxKernels,
    AddGpuSumKernels, AddGpuSwigluKernels, AddGpuViewKernels, AddGpuWhereKernels;
// After the families of which they use kernels for dense tensors.
AddFamily AddGpuRowKernels, AddGpuRowUpdateKernels;

}  // namespace weft

#endif  // WEFT_OPS_GPU_FAMILIES_H_
