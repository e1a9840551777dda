// The families of CPU kernels that common models use, one function and one file each: what it adds
// to the table. extra/families.h has the others.
#ifndef WEFT_OPS_CPU_FAMILIES_H_
#define WEFT_OPS_CPU_FAMILIES_H_

#include "ops/kernel.h"

namespace weft {

// All of these.
void AddCoreKernels(KernelTable* table);

// --- Elementwise and along one dimension --------------------------------------------------------

void AddActivationKernels(KernelTable* table);       // relu, gelu, sqrt, exp, ...
void AddClipKernels(KernelTable* table);             // clip, clip_by_norm
void AddComparisonKernels(KernelTable* table);       // equal, ..., logical_and, ..., isfinite, ...
void AddCopyKernels(KernelTable* table);             // assign, cast
void AddCumulativeKernels(KernelTable* table);       // cumsum, cumprod, ...
void AddElementwiseKernels(KernelTable* table);      // elementwise_*
void AddOrderStatisticsKernels(KernelTable* table);  // arg_max, argsort, top_k_v2, ...
void AddPreluKernels(KernelTable* table);            // prelu
void AddReduceKernels(KernelTable* table);           // reduce_mean, squared_l2_norm, ...
void AddSumKernels(KernelTable* table);              // sum
void AddWhereKernels(KernelTable* table);            // where, masked_select, tril_triu, ...

// --- Tensors made, and elements moved -----------------------------------------------------------

void AddConcatSplitKernels(KernelTable* table);    // concat, split, stack, ...
void AddCreationKernels(KernelTable* table);       // fill_constant, range, shape, ...
void AddGatherScatterKernels(KernelTable* table);  // gather, scatter, index_select, ...
void AddRandomKernels(KernelTable* table);         // *_random
void AddStridedViewKernels(KernelTable* table);    // transpose2, slice, expand_v2, ...

// --- Layers -------------------------------------------------------------------------------------

void AddConvKernels(KernelTable* table);         // conv2d, conv2d_transpose, ...
void AddDropoutKernels(KernelTable* table);      // dropout
void AddLookupTableKernels(KernelTable* table);  // lookup_table_v2, c_embedding
void AddMatMulKernels(KernelTable* table);       // matmul, mul, bmm, ...
void AddNormKernels(KernelTable* table);         // batch_norm, layer_norm, ...
void AddPoolKernels(KernelTable* table);         // pool2d, pool3d, ...
void AddRnnKernels(KernelTable* table);          // rnn

// --- Losses and metrics -------------------------------------------------------------------------

void AddLossKernels(KernelTable* table);                     // huber_loss, log_loss, ...
void AddMetricKernels(KernelTable* table);                   // accuracy, auc
void AddSigmoidCrossEntropyKernels(KernelTable* table);      // sigmoid_cross_entropy_with_logits
void AddSoftmaxKernels(KernelTable* table);                  // softmax
void AddSoftmaxWithCrossEntropyKernels(KernelTable* table);  // softmax_with_cross_entropy

// --- Updates ------------------------------------------------------------------------------------

void AddAdamKernels(KernelTable* table);            // adam, adamw, lamb
void AddAmpKernels(KernelTable* table);             // check_finite_and_unscale, ...
void AddCoalesceTensorKernels(KernelTable* table);  // coalesce_tensor
void AddOptimizerKernels(KernelTable* table);       // adagrad, momentum, rmsprop, sgd
void AddSparseSumKernels(KernelTable* table);       // scale, sum, ... of SelectedRows

// --- Debugging ----------------------------------------------------------------------------------

void AddPrintKernels(KernelTable* table);  // assert, print

}  // namespace weft

#endif  // WEFT_OPS_CPU_FAMILIES_H_
