// The families of CPU kernels: what each adds to the table.
#ifndef WEFT_OPS_CPU_FAMILIES_H_
#define WEFT_OPS_CPU_FAMILIES_H_

#include "ops/kernel.h"

namespace weft {

void AddActivationKernels(KernelTable* table);               // relu, square
void AddCoalesceTensorKernels(KernelTable* table);           // coalesce_tensor
void AddCopyKernels(KernelTable* table);                     // assign, cast
void AddCreationKernels(KernelTable* table);                 // fill_constant
void AddElementwiseKernels(KernelTable* table);              // elementwise_add, elementwise_sub
void AddMulKernels(KernelTable* table);                      // mul
void AddOptimizerKernels(KernelTable* table);                // sgd, momentum, adam
void AddRandomKernels(KernelTable* table);                   // *_random
void AddReduceKernels(KernelTable* table);                   // reduce_mean
void AddScaleKernels(KernelTable* table);                    // scale
void AddSoftmaxWithCrossEntropyKernels(KernelTable* table);  // softmax_with_cross_entropy

}  // namespace weft

#endif  // WEFT_OPS_CPU_FAMILIES_H_
