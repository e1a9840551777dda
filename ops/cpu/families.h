// The families of CPU kernels: what each adds to the table.
#ifndef WEFT_OPS_CPU_FAMILIES_H_
#define WEFT_OPS_CPU_FAMILIES_H_

#include "ops/kernel.h"

namespace weft {

void AddActivationKernels(KernelTable* table);               // relu, sigmoid, sqrt, square, tanh
void AddAdamKernels(KernelTable* table);                     // adam, adamw, lamb
void AddAlongKernels(KernelTable* table);                    // cumsum, argsort, top_k_v2, ...
void AddAmpKernels(KernelTable* table);                      // check_finite_and_unscale, ...
void AddAverageKernels(KernelTable* table);                  // average_accumulates
void AddClipKernels(KernelTable* table);                     // clip, clip_by_norm
void AddCoalesceTensorKernels(KernelTable* table);           // coalesce_tensor
void AddComparisonKernels(KernelTable* table);               // equal, ..., logical_and, ...
void AddConditionKernels(KernelTable* table);                // where, masked_select, tril_triu, ...
void AddConvKernels(KernelTable* table);                     // conv2d, conv2d_transpose, ...
void AddCopyKernels(KernelTable* table);                     // assign, cast
void AddCreationKernels(KernelTable* table);                 // fill_constant
void AddCtcKernels(KernelTable* table);                      // warpctc
void AddCvmKernels(KernelTable* table);                      // cvm
void AddDataNormKernels(KernelTable* table);                 // data_norm
void AddDeformableConvKernels(KernelTable* table);           // deformable_conv
void AddDenseAlgebraKernels(KernelTable* table);             // inverse, solve, ...
void AddDropoutKernels(KernelTable* table);                  // dropout
void AddEinsumKernels(KernelTable* table);                   // einsum
void AddElementwiseKernels(KernelTable* table);              // elementwise_*
void AddGeometryKernels(KernelTable* table);                 // dist, cross
void AddHierarchicalSigmoidKernels(KernelTable* table);      // hierarchical_sigmoid
void AddIndexKernels(KernelTable* table);                    // gather, scatter, one_hot_v2, ...
void AddLikeKernels(KernelTable* table);                     // fill_any_like, range, ...
void AddLookupTableKernels(KernelTable* table);              // lookup_table_v2, c_embedding
void AddLossKernels(KernelTable* table);                     // huber_loss, log_loss, ...
void AddLrnKernels(KernelTable* table);                      // lrn
void AddMatMulKernels(KernelTable* table);                   // matmul, mul, bmm, ...
void AddMetricKernels(KernelTable* table);                   // accuracy, auc
void AddNoiseKernels(KernelTable* table);                    // rrelu, gumbel_softmax
void AddNormKernels(KernelTable* table);                     // batch_norm, layer_norm, ...
void AddOptimizerKernels(KernelTable* table);                // adagrad, momentum, rmsprop, sgd
void AddPoolKernels(KernelTable* table);                     // pool2d, pool3d, ...
void AddPrintKernels(KernelTable* table);                    // print
void AddRandomKernels(KernelTable* table);                   // *_random
void AddReduceKernels(KernelTable* table);                   // reduce_mean, squared_l2_norm
void AddRegionsKernels(KernelTable* table);                  // roi_align, roi_pool
void AddResampleKernels(KernelTable* table);                 // pad3d, unfold, grid_sampler, ...
void AddRnnKernels(KernelTable* table);                      // rnn
void AddRowConvKernels(KernelTable* table);                  // row_conv
void AddSampledClassesKernels(KernelTable* table);           // nce
void AddScaleKernels(KernelTable* table);                    // increment, scale
void AddSearchKernels(KernelTable* table);                   // searchsorted, bincount, unique
void AddSecondGradientKernels(KernelTable* table);           // mul_grad_grad, ...
void AddSeedKernels(KernelTable* table);                     // seed
void AddSegmentKernels(KernelTable* table);                  // segment_pool
void AddSigmoidCrossEntropyKernels(KernelTable* table);      // sigmoid_cross_entropy_with_logits
void AddSoftmaxKernels(KernelTable* table);                  // softmax
void AddSoftmaxWithCrossEntropyKernels(KernelTable* table);  // softmax_with_cross_entropy
void AddSparseSumKernels(KernelTable* table);                // scale, sum, rows
void AddSpectralNormKernels(KernelTable* table);             // spectral_norm
void AddSumKernels(KernelTable* table);                      // sum
void AddViewKernels(KernelTable* table);  // transpose2, slice, reshape2, concat, ...
void AddYoloKernels(KernelTable* table);  // yolov3_loss, yolo_box

}  // namespace weft

#endif  // WEFT_OPS_CPU_FAMILIES_H_
