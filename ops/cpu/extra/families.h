// The families of CPU kernels that few models use, one function and one file each. Only the table
// of all kernels depends on them.
#ifndef WEFT_OPS_CPU_EXTRA_FAMILIES_H_
#define WEFT_OPS_CPU_EXTRA_FAMILIES_H_

#include "ops/kernel.h"

namespace weft {

// Adds all families below.
void AddExtraKernels(KernelTable* table);

// Adds the kernels of one file.
using AddFamily = void(KernelTable* table);

AddFamily AddClassLossKernels;        // hierarchical_sigmoid, nce, sample_logits
AddFamily AddClickThroughKernels;     // cvm, data_norm
AddFamily AddDeformableConvKernels;   // deformable_conv
AddFamily AddDenseAlgebraKernels;     // inverse, cholesky, solve, bilinear_tensor_product, ...
AddFamily AddDiagonalKernels;         // diagonal, trace, diag_v2, diag_embed
AddFamily AddExtraActivationKernels;  // gumbel_softmax, lrn, maxout, rrelu
AddFamily AddExtraMoveKernels;        // meshgrid, pixel_shuffle, roll, temporal_shift, ...
AddFamily AddExtraNormKernels;        // dist, norm, renorm, spectral_norm
AddFamily AddFractionalPoolKernels;   // fractional_max_pool2d, fractional_max_pool3d
AddFamily AddImageCopyKernels;        // pad, pad3d, unfold, fold, unpool
AddFamily AddIndexingKernels;         // gather_tree, multiplex, segment_pool, shard_index
AddFamily AddLabelMetricKernels;      // chunk_eval, ctc_align, edit_distance
AddFamily AddMedianKernels;           // median, nanmedian
AddFamily AddModelAverageKernels;     // average_accumulates
AddFamily AddPaddle1Kernels;          // cos_sim, gru_unit, linear_chain_crf, ...
AddFamily AddPaddle1LayerKernels;     // center_loss, prior_box, sigmoid_focal_loss, ...
AddFamily AddProductKernels;          // cross, einsum, kron
AddFamily AddResamplingKernels;       // affine_grid, bilinear_interp_v2, grid_sampler, ...
AddFamily AddRoiPoolingKernels;       // roi_align, roi_pool
AddFamily AddSearchKernels;           // bincount, searchsorted, unique
AddFamily AddSecondGradientKernels;   // mul_grad_grad, ...
AddFamily AddSequenceKernels;         // row_conv, warpctc
AddFamily AddSparsifyKernels;         // sparsify_topk, sparsify_threshold, densify
AddFamily AddSpecialFunctionKernels;  // copysign, i0, i0e, i1, i1e, polygamma
AddFamily AddYoloKernels;             // yolov3_loss, yolo_box

}  // namespace weft

#endif  // WEFT_OPS_CPU_EXTRA_FAMILIES_H_
