#include "executor/streams/sim_device.h"

#include <atomic>
#include <chrono>
#include <new>
#include <utility>

#include "executor/streams/thread_stream.h"

namespace weft {
namespace {

// Counts what is allocated, also after the device is gone: tensors may outlive it.
class Budget {
 public:
  explicit Budget(int64_t bytes) : bytes_(bytes) {}

  // False if that is too much.
  bool Take(int64_t bytes) {
    const int64_t used = used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (bytes_ == 0 || used <= bytes_) return true;
    Return(bytes);
    return false;
  }
  void Return(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  const int64_t bytes_;
  std::atomic<int64_t> used_{0};
};

class SimMemory : public Memory {
 public:
  SimMemory(int64_t bytes, Memory* memory)
      : memory_(memory), budget_(std::make_shared<Budget>(bytes)) {}

  bool IsHost() const override { return true; }
  std::shared_ptr<void> Allocate(size_t bytes) override {
    const auto count = static_cast<int64_t>(bytes);
    if (!budget_->Take(count)) throw std::bad_alloc();
    std::shared_ptr<void> block;
    try {
      block = memory_->Allocate(bytes);
    } catch (...) {
      budget_->Return(count);
      throw;
    }
    void* const data = block.get();
    return std::shared_ptr<void>(
        data, [block = std::move(block), budget = budget_, count](void*) mutable {
          block = nullptr;
          budget->Return(count);
        });
  }
  absl::Status CopyFromHost(const void* from, size_t bytes, void* to) override {
    return memory_->CopyFromHost(from, bytes, to);
  }
  absl::Status CopyToHost(const void* from, size_t bytes, void* to) override {
    return memory_->CopyToHost(from, bytes, to);
  }
  absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) override {
    return memory_->Copy(from, bytes, to, stream);
  }

 private:
  Memory* const memory_;
  const std::shared_ptr<Budget> budget_;
};

class SimDevice : public Device {
 public:
  SimDevice(const SimDeviceOptions& options, Memory* memory)
      : options_(options), memory_(options.memory_bytes, memory), threads_(NewHostDevice(memory)) {}

  Memory* memory() override { return &memory_; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(absl::string_view name) override {
    return threads_->NewStream(name);
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewComputeStream(absl::string_view name) override {
    return threads_->NewComputeStream(name);
  }
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override { return threads_->NewEvent(); }

  std::chrono::nanoseconds CopyTime(int64_t bytes) const override {
    double seconds = options_.copy_latency_s;
    if (options_.copy_bytes_per_s > 0) {
      seconds += static_cast<double>(bytes) / options_.copy_bytes_per_s;
    }
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(seconds));
  }

 private:
  const SimDeviceOptions options_;
  SimMemory memory_;
  const std::unique_ptr<Device> threads_;
};

}  // namespace

std::unique_ptr<Device> NewSimDevice(const SimDeviceOptions& options, Memory* memory) {
  return std::make_unique<SimDevice>(options, memory);
}

}  // namespace weft
