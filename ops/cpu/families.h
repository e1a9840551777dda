// The families of CPU kernels that common models use: each file adds its kernels with one function.
// extra/families.h declares the other families.
#ifndef WEFT_OPS_CPU_FAMILIES_H_
#define WEFT_OPS_CPU_FAMILIES_H_

#include "ops/kernel.h"

namespace weft {

// All of these.
void AddCoreKernels(KernelTable* table);

// --- Elementwise and along one dimension --------------------------------------------------------

void AddActivationKernels(KernelTable* table);       // relu, gelu, sqrt, exp, prelu, ...
void AddClipKernels(KernelTable* table);             // clip, clip_by_norm
void AddComparisonKernels(KernelTable* table);       // equal, ..., logical_and, ..., isfinite, ...
void AddCopyKernels(KernelTable* table);             // assign, cast, reshape2, ...
void AddCumulativeKernels(KernelTable* table);       // cumsum, cumprod, ...
void AddElementwiseKernels(KernelTable* table);      // elementwise_*, scale, ...
void AddOrderStatisticsKernels(KernelTable* table);  // arg_max, argsort, top_k_v2, ...
void AddReduceKernels(KernelTable* table);           // reduce_mean, squared_l2_norm, ...
void AddSumKernels(KernelTable* table);  // sum; scale, clip_by_norm, ... of SelectedRows
void AddSwigluKernels(KernelTable* table);
void AddWhereKernels(KernelTable* table);  // where, masked_select, tril_triu, ...

// --- Tensors made, and elements moved -----------------------------------------------------------

void AddConcatSplitKernels(KernelTable* table);    // concat, split, stack, ...
void AddCreationKernels(KernelTable* table);       // fill_constant, range, one_hot_v2, shape, ...
void AddGatherScatterKernels(KernelTable* table);  // gather, scatter, index_select, ...
void AddPutAlongAxisKernels(KernelTable* table);   // put_along_axis
void AddRandomKernels(KernelTable* table);         // *_random, seed, ...
void AddStridedViewKernels(KernelTable* table);    // transpose2, slice, expand_v2, set_value, ...

// --- Layers -------------------------------------------------------------------------------------

void AddBatchNormKernels(KernelTable* table);    // batch_norm, affine_channel
void AddConvKernels(KernelTable* table);         // conv2d, conv2d_transpose, ...
void AddDropoutKernels(KernelTable* table);      // dropout
void AddLookupTableKernels(KernelTable* table);  // lookup_table_v2, c_embedding
void AddMatMulKernels(KernelTable* table);       // matmul, mul, bmm, ...
void AddNormKernels(KernelTable* table);         // layer_norm, group_norm, ...
void AddPoolKernels(KernelTable* table);         // pool2d, pool3d, ...
void AddRnnKernels(KernelTable* table);          // rnn

// --- Losses and metrics -------------------------------------------------------------------------

void AddLossKernels(KernelTable* table);     // cross_entropy, huber_loss, log_loss, ...
void AddMetricKernels(KernelTable* table);   // accuracy, auc
void AddSoftmaxKernels(KernelTable* table);  // softmax, softmax_with_cross_entropy, ...

// --- Updates ------------------------------------------------------------------------------------

void AddAdamKernels(KernelTable* table);              // adam, adamw, lamb
void AddAmpKernels(KernelTable* table);               // check_finite_and_unscale, ...
void AddCoalesceTensorKernels(KernelTable* table);    // coalesce_tensor
void AddOptimizerKernels(KernelTable* table);         // adagrad, momentum, rmsprop, sgd
void AddPaddle3OptimizerKernels(KernelTable* table);  // asgd, nadam, radam, rprop

// --- Debugging ----------------------------------------------------------------------------------

void AddPrintKernels(KernelTable* table);  // assert, print

}  // namespace weft

#endif  // WEFT_OPS_CPU_FAMILIES_H_
