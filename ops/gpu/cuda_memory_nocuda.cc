#include "ops/gpu/cuda_memory.h"

namespace weft {

absl::StatusOr<std::unique_ptr<CudaMemory>> NewCudaMemory(int /*ordinal*/) {
  return absl::UnavailableError("built without CUDA");
}

}  // namespace weft
