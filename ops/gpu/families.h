// The families of GPU kernels: each adds its kernels to the table.
#ifndef WEFT_OPS_GPU_FAMILIES_H_
#define WEFT_OPS_GPU_FAMILIES_H_

#include "ops/kernel.h"

namespace weft {

void AddGpuActivationKernels(KernelTable* table);
void AddGpuAmpKernels(KernelTable* table);
void AddGpuClipKernels(KernelTable* table);
void AddGpuCoalesceTensorKernels(KernelTable* table);
void AddGpuComparisonKernels(KernelTable* table);
void AddGpuConvKernels(KernelTable* table);
void AddGpuCopyKernels(KernelTable* table);
void AddGpuCreationKernels(KernelTable* table);
void AddGpuDropoutKernels(KernelTable* table);
void AddGpuElementwiseKernels(KernelTable* table);
void AddGpuGatherScatterKernels(KernelTable* table);
void AddGpuLossKernels(KernelTable* table);
void AddGpuMatMulKernels(KernelTable* table);
void AddGpuNormKernels(KernelTable* table);
void AddGpuOptimizerKernels(KernelTable* table);
void AddGpuPaddle3OptimizerKernels(KernelTable* table);
void AddGpuPoolKernels(KernelTable* table);
void AddGpuPreluKernels(KernelTable* table);
void AddGpuSwigluKernels(KernelTable* table);
void AddGpuReduceKernels(KernelTable* table);
// After the families of which it uses kernels for dense tensors.
void AddGpuRowKernels(KernelTable* table);
void AddGpuRowUpdateKernels(KernelTable* table);
void AddGpuSoftmaxKernels(KernelTable* table);
void AddGpuSumKernels(KernelTable* table);
void AddGpuViewKernels(KernelTable* table);
void AddGpuWhereKernels(KernelTable* table);

}  // namespace weft

#endif  // WEFT_OPS_GPU_FAMILIES_H_
