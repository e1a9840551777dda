// The families of CPU kernels that few models use, one function and one file each: what it adds to
// the table. Nothing outside of this directory depends on them but the table of all kernels.
#ifndef WEFT_OPS_CPU_EXTRA_FAMILIES_H_
#define WEFT_OPS_CPU_EXTRA_FAMILIES_H_

#include "ops/kernel.h"

namespace weft {

// All of these.
void AddExtraKernels(KernelTable* table);

// --- Linear algebra -----------------------------------------------------------------------------

void AddBilinearTensorProductKernels(KernelTable* table);  // bilinear_tensor_product
void AddCrossKernels(KernelTable* table);                  // cross
void AddDenseAlgebraKernels(KernelTable* table);           // inverse, cholesky, solve, ...
void AddDiagonalKernels(KernelTable* table);               // diagonal, trace, diag_v2, diag_embed
void AddDistKernels(KernelTable* table);                   // dist
void AddEinsumKernels(KernelTable* table);                 // einsum
void AddKronKernels(KernelTable* table);                   // kron
void AddSecondGradientKernels(KernelTable* table);         // mul_grad_grad, ...

// --- Normalization and activation ---------------------------------------------------------------

void AddDataNormKernels(KernelTable* table);       // data_norm
void AddGumbelSoftmaxKernels(KernelTable* table);  // gumbel_softmax
void AddL2NormalizeKernels(KernelTable* table);    // norm
void AddLrnKernels(KernelTable* table);            // lrn
void AddMaxoutKernels(KernelTable* table);         // maxout
void AddRenormKernels(KernelTable* table);         // renorm
void AddRreluKernels(KernelTable* table);          // rrelu
void AddSpectralNormKernels(KernelTable* table);   // spectral_norm

// --- Images and detection -----------------------------------------------------------------------

void AddDeformableConvKernels(KernelTable* table);  // deformable_conv
void AddGridSampleKernels(KernelTable* table);      // affine_grid, grid_sampler
void AddInterpolateKernels(KernelTable* table);     // bilinear_interp_v2, ...
void AddPadKernels(KernelTable* table);             // pad, pad3d
void AddPixelShuffleKernels(KernelTable* table);    // pixel_shuffle, channel_shuffle, ...
void AddRoiPoolingKernels(KernelTable* table);      // roi_align, roi_pool
void AddTemporalShiftKernels(KernelTable* table);   // temporal_shift
void AddUnfoldKernels(KernelTable* table);          // unfold, fold
void AddUnpoolKernels(KernelTable* table);          // unpool
void AddYoloKernels(KernelTable* table);            // yolov3_loss, yolo_box

// --- Sequences and search -----------------------------------------------------------------------

void AddBinCountKernels(KernelTable* table);      // bincount
void AddCtcKernels(KernelTable* table);           // warpctc
void AddGatherTreeKernels(KernelTable* table);    // gather_tree
void AddRowConvKernels(KernelTable* table);       // row_conv
void AddSearchSortedKernels(KernelTable* table);  // searchsorted
void AddSegmentPoolKernels(KernelTable* table);   // segment_pool
void AddUniqueKernels(KernelTable* table);        // unique

// --- Large vocabularies and click-through rates -------------------------------------------------

void AddCvmKernels(KernelTable* table);                  // cvm
void AddHierarchicalSigmoidKernels(KernelTable* table);  // hierarchical_sigmoid
void AddNceKernels(KernelTable* table);                  // nce
void AddShardIndexKernels(KernelTable* table);           // shard_index

// --- Other --------------------------------------------------------------------------------------

void AddBroadcastTensorsKernels(KernelTable* table);  // broadcast_tensors, meshgrid
void AddModelAverageKernels(KernelTable* table);      // average_accumulates
void AddMultiplexKernels(KernelTable* table);         // multiplex
void AddRollKernels(KernelTable* table);              // roll

}  // namespace weft

#endif  // WEFT_OPS_CPU_EXTRA_FAMILIES_H_
