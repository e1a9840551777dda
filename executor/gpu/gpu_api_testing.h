// A GPU for tests of communicators, on the host.
#ifndef WEFT_EXECUTOR_GPU_GPU_API_TESTING_H_
#define WEFT_EXECUTOR_GPU_GPU_API_TESTING_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "executor/gpu/gpu_api.h"

namespace weft::testing {

// A stream whose work a thread does, in order. Its address is its native handle.
class FakeStream {
 public:
  FakeStream();
  // Finishes the work.
  ~FakeStream();
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;

  void Enqueue(std::function<void()> task);
  void Synchronize();

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_busy_ = false;
  bool ends_ = false;
  std::thread thread_;  // last: it uses all members above
};

// Enqueues on FakeStreams. Its memory is that of the host; collectives are those of
// RunGpuCollective, compiled for the host.
class FakeGpu : public GpuApi {
 public:
  // The devices on which threads have used it: CUDA would have made a context on each.
  std::set<int> contexts();

  absl::StatusOr<int> CurrentDevice() override;
  absl::Status SetDevice(int device) override;
  absl::StatusOr<std::unique_ptr<Mark>> NewMark() override;
  absl::Status Record(Mark* mark, void* stream) override;
  absl::Status Wait(Mark* mark, void* stream) override;
  bool HasPassed(Mark* mark) override;
  std::shared_ptr<void> Allocate(size_t bytes) override;
  absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) override;
  absl::Status RunCollective(const CollectiveDesc& desc, absl::Span<const void* const> in,
                             absl::Span<void* const> out, int part, int num_parts,
                             void* stream) override;

 private:
  void UseDevice();

  std::mutex mutex_;
  std::set<int> contexts_;
};

}  // namespace weft::testing

#endif  // WEFT_EXECUTOR_GPU_GPU_API_TESTING_H_
