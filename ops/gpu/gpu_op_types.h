// Which ops have kernels for GPUs, known in every build.
#ifndef WEFT_OPS_GPU_GPU_OP_TYPES_H_
#define WEFT_OPS_GPU_GPU_OP_TYPES_H_

#include <string>
#include <vector>

namespace weft {

// The op types of GpuKernels() of a build with CUDA, sorted.
const std::vector<std::string>& GpuOpTypes();
// Those with kernels for SelectedRows, sorted.
const std::vector<std::string>& GpuOpTypesForRows();

}  // namespace weft

#endif  // WEFT_OPS_GPU_GPU_OP_TYPES_H_
