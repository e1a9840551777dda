#include "executor/streams/cuda_stream.h"

namespace weft {

absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(int /*ordinal*/) {
  return absl::UnavailableError("built without CUDA");
}

}  // namespace weft
