// The memory of a CUDA device.
#ifndef WEFT_OPS_GPU_CUDA_MEMORY_H_
#define WEFT_OPS_GPU_CUDA_MEMORY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ops/memory.h"

namespace weft {

// The memory of device `ordinal`. It must outlive its allocations. Unavailable without that device
// or a driver.
absl::StatusOr<std::unique_ptr<Memory>> NewCudaMemory(int ordinal);

}  // namespace weft

#endif  // WEFT_OPS_GPU_CUDA_MEMORY_H_
