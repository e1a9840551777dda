// A GPU for tests of plans on two devices, on the host.
#ifndef WEFT_EXECUTOR_GPU_GPU_DEVICE_TESTING_H_
#define WEFT_EXECUTOR_GPU_GPU_DEVICE_TESTING_H_

#include <atomic>
#include <memory>

#include "executor/gpu/gpu_api_testing.h"
#include "executor/streams/stream.h"
#include "ops/memory.h"

namespace weft::testing {

// Its streams are FakeStreams, whose addresses are their native handles: tasks enqueue there, as
// those of CUDA do. Its memory counts as that of a device, though the host can access it.
class FakeGpuDevice : public Device {
 public:
  FakeGpuDevice();
  ~FakeGpuDevice() override;

  // Whether it is an address in pinned memory of any such device.
  static bool IsPinned(const void* data);

  Memory* memory() override;
  Memory* pinned_memory() override;
  StreamSignals* signals() override;
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(absl::string_view name) override;
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override;

  // How often a stream was told to wait for a counter of the host.
  int num_value_waits() const { return num_value_waits_; }

  // From now on, calls after work are lost, and streams return an error when they are synchronized.
  void Fail();

 private:
  class Signals;
  class OwnMemory;
  class FakeDeviceStream;

  FakeGpu gpu_;
  const std::shared_ptr<std::atomic<bool>> has_failed_;
  std::atomic<int> num_value_waits_{0};
  const std::unique_ptr<OwnMemory> memory_, pinned_memory_;
  const std::unique_ptr<Signals> signals_;
};

}  // namespace weft::testing

#endif  // WEFT_EXECUTOR_GPU_GPU_DEVICE_TESTING_H_
