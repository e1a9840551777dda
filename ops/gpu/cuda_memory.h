// The memory of a CUDA device, and that of the host from which it copies.
#ifndef WEFT_OPS_GPU_CUDA_MEMORY_H_
#define WEFT_OPS_GPU_CUDA_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "ops/memory.h"

namespace weft {

class CudaMemory : public Memory {
 public:
  // How many blocks have come and gone.
  virtual int64_t changes() const = 0;
};

// The memory of device `ordinal`. It must outlive its allocations. Unavailable without that device
// or a driver.
absl::StatusOr<std::unique_ptr<CudaMemory>> NewCudaMemory(int ordinal);

// Page-locked memory of the host, from and to which the streams of device `ordinal` copy without
// the host's help. Allocation takes much longer than of other memory, and may wait for the device.
// In builds with CUDA only.
std::unique_ptr<Memory> NewPinnedMemory(int ordinal);

}  // namespace weft

#endif  // WEFT_OPS_GPU_CUDA_MEMORY_H_
