// The families of GPU kernels: each adds its kernels to the table.
#ifndef WEFT_OPS_GPU_FAMILIES_H_
#define WEFT_OPS_GPU_FAMILIES_H_

#include "ops/kernel.h"

namespace weft {

void AddGpuActivationKernels(KernelTable* table);   // relu, gelu
void AddGpuCopyKernels(KernelTable* table);         // cast
void AddGpuCreationKernels(KernelTable* table);     // fill_constant, *_random
void AddGpuElementwiseKernels(KernelTable* table);  // elementwise_*, scale
void AddGpuLossKernels(KernelTable* table);         // softmax_with_cross_entropy
void AddGpuMatMulKernels(KernelTable* table);       // mul
void AddGpuOptimizerKernels(KernelTable* table);    // sgd, adam
void AddGpuReduceKernels(KernelTable* table);       // reduce_mean

}  // namespace weft

#endif  // WEFT_OPS_GPU_FAMILIES_H_
