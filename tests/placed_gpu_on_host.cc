// With kernels of GPUs that are compiled for the host.
#include <utility>

#include "executor/gpu_api_testing.h"
#include "executor/gpu_device_testing.h"
#include "executor/local_gpu_communicator.h"
#include "tests/placed_gpu.h"

namespace weft::testing {

absl::StatusOr<PlacedGpu> NewPlacedGpu() {
  PlacedGpu gpu;
  gpu.new_device = [](int, Memory*) {
    return std::make_unique<FakeGpuDevice>(FakeGpuDevice::Tasks::kWork);
  };
  gpu.new_group = [fake = std::make_shared<FakeGpu>()](GroupOptions options) {
    return NewLocalGpuGroup(std::move(options), fake.get());
  };
  gpu.simulated = &GpuKernels();
  gpu.has_same_bits = true;
  return gpu;
}

}  // namespace weft::testing
