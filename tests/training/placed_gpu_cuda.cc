#include <utility>

#include "base/status_macros.h"
#include "executor/gpu/local_gpu_communicator.h"
#include "executor/streams/cuda_stream.h"
#include "tests/training/placed_gpu.h"

namespace weft::testing {

absl::StatusOr<PlacedGpu> NewPlacedGpu() {
  WEFT_RETURN_IF_ERROR(NewCudaDevice(0).status());
  PlacedGpu gpu;
  gpu.new_device = [](int, Memory*) { return NewCudaDevice(0); };
  gpu.new_group = [](GroupOptions options) { return NewLocalGpuGroup(std::move(options)); };
  gpu.kernels = &GpuKernels();
  gpu.host_kernels = &CpuKernels();
  gpu.simulated = &CpuKernels();
  return gpu;
}

}  // namespace weft::testing
