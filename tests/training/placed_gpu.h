// The GPU of train_placed_gpu_test: a fake one, or that of the machine.
#ifndef WEFT_TESTS_TRAINING_PLACED_GPU_H_
#define WEFT_TESTS_TRAINING_PLACED_GPU_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "executor/communicators/communicator.h"
#include "executor/streams/stream.h"
#include "ops/kernel.h"

namespace weft::testing {

struct PlacedGpu {
  std::function<absl::StatusOr<std::unique_ptr<Device>>(int rank, Memory* memory)> new_device;
  std::function<absl::StatusOr<std::unique_ptr<CommunicatorGroup>>(GroupOptions)> new_group;
  const KernelTable *kernels = nullptr, *host_kernels = nullptr;
  // For the accelerator that the host simulates. Those of a GPU, if the host can run them: results
  // then have the same bits.
  const KernelTable* simulated = nullptr;
  bool has_same_bits = false;
};

// Unavailable without a GPU.
absl::StatusOr<PlacedGpu> NewPlacedGpu();

}  // namespace weft::testing

#endif  // WEFT_TESTS_TRAINING_PLACED_GPU_H_
