#include "executor/streams/cuda_stream.h"

namespace weft {

absl::StatusOr<int> CudaDeviceCount() { return absl::UnavailableError("built without CUDA"); }

absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(int /*ordinal*/) {
  return absl::UnavailableError("built without CUDA");
}

}  // namespace weft
