#include "executor/gpu/gpu_device_testing.h"

#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "base/status_macros.h"
#include "executor/streams/progress_counter.h"
#include "ops/gpu/convert_halves.h"

namespace weft::testing {
namespace {

FakeStream* AsFake(void* stream) { return static_cast<FakeStream*>(stream); }

// Blocks of pinned memory: begins and ends.
class PinnedBlocks {
 public:
  void Add(const void* begin, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    ends_[static_cast<const char*>(begin)] = static_cast<const char*>(begin) + bytes;
  }
  void Remove(const void* begin) {
    std::lock_guard<std::mutex> lock(mutex_);
    ends_.erase(static_cast<const char*>(begin));
  }
  bool Contain(const void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto next = ends_.upper_bound(static_cast<const char*>(data));
    return next != ends_.begin() && data < std::prev(next)->second;
  }

 private:
  std::mutex mutex_;
  std::map<const char*, const char*> ends_;
};

PinnedBlocks& AllPinned() {
  static auto* const blocks = new PinnedBlocks;
  return *blocks;
}

struct FakeCounter : public StreamSignals::Counter {
  void AdvanceTo(uint32_t n) override { count->AdvanceTo(n); }

  const std::shared_ptr<ProgressCounter> count = std::make_shared<ProgressCounter>();
};

struct FakeEvent : public Event {
  explicit FakeEvent(std::unique_ptr<GpuApi::Mark> m) : mark(std::move(m)) {}

  const std::unique_ptr<GpuApi::Mark> mark;
  absl::Status status;
};

}  // namespace

class FakeGpuDevice::OwnMemory : public Memory {
 public:
  explicit OwnMemory(bool is_host) : is_host_(is_host) {}

  bool IsHost() const override { return is_host_; }
  std::shared_ptr<void> Allocate(size_t bytes) override {
    std::shared_ptr<void> block = HostMemory()->Allocate(bytes);
    std::memset(block.get(), 0xFF, bytes);  // NaN: nothing reads what nothing wrote
    if (!is_host_) return block;
    void* const data = block.get();
    AllPinned().Add(data, bytes);
    return std::shared_ptr<void>(data, [block](void* p) { AllPinned().Remove(p); });
  }
  absl::Status CopyFromHost(const void* from, size_t bytes, void* to) override {
    return HostMemory()->CopyFromHost(from, bytes, to);
  }
  absl::Status CopyToHost(const void* from, size_t bytes, void* to) override {
    return HostMemory()->CopyToHost(from, bytes, to);
  }
  absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) override {
    if (stream != nullptr) AsFake(stream)->Synchronize();
    return HostMemory()->Copy(from, bytes, to, nullptr);
  }
  absl::Status ConvertHalves(DType from_type, const void* from, DType to_type, void* to,
                             int64_t count, void* stream) override {
    AsFake(stream)->Synchronize();
    return weft::ConvertHalves(KernelContext(), from_type, from, to_type, to, count);
  }

 private:
  const bool is_host_;
};

class FakeGpuDevice::Signals : public StreamSignals {
 public:
  Signals(std::shared_ptr<std::atomic<bool>> has_failed, std::atomic<int>* num_waits)
      : has_failed_(std::move(has_failed)), num_waits_(*num_waits) {}

  absl::StatusOr<std::unique_ptr<Counter>> NewCounter() override {
    return std::make_unique<FakeCounter>();
  }
  absl::Status WaitFor(Counter* counter, uint32_t count, void* stream) override {
    ++num_waits_;
    AsFake(stream)->Enqueue(
        [counter = static_cast<FakeCounter*>(counter)->count, count] { counter->WaitFor(count); });
    return absl::OkStatus();
  }
  absl::Status CallAfter(void* stream, std::function<void()> f) override {
    AsFake(stream)->Enqueue([f = std::move(f), has_failed = has_failed_] {
      if (!*has_failed) f();
    });
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<std::atomic<bool>> has_failed_;
  std::atomic<int>& num_waits_;
};

class FakeGpuDevice::FakeDeviceStream : public Stream {
 public:
  explicit FakeDeviceStream(FakeGpuDevice* device) : device_(*device) {}

  void Launch(Task task) override {
    if (status_.ok()) status_ = task();
  }
  void Record(Event* event) override {
    auto* const recorded = static_cast<FakeEvent*>(event);
    recorded->status = status_;
    status_.Update(device_.gpu_.Record(recorded->mark.get(), &stream_));
  }
  void Wait(Event* event) override {
    auto* const awaited = static_cast<FakeEvent*>(event);
    status_.Update(awaited->status);
    status_.Update(device_.gpu_.Wait(awaited->mark.get(), &stream_));
  }
  absl::Status Synchronize() override {
    if (*device_.has_failed_) {
      status_.Update(absl::InternalError("the device has failed"));
    } else {
      stream_.Synchronize();
    }
    return status_;
  }
  void* native_handle() const override { return &stream_; }

 private:
  FakeGpuDevice& device_;
  absl::Status status_;
  mutable FakeStream stream_;
};

FakeGpuDevice::FakeGpuDevice()
    : has_failed_(std::make_shared<std::atomic<bool>>(false)),
      memory_(std::make_unique<OwnMemory>(/*is_host=*/false)),
      pinned_memory_(std::make_unique<OwnMemory>(/*is_host=*/true)),
      signals_(std::make_unique<Signals>(has_failed_, &num_value_waits_)) {}

FakeGpuDevice::~FakeGpuDevice() = default;

bool FakeGpuDevice::IsPinned(const void* data) { return AllPinned().Contain(data); }

Memory* FakeGpuDevice::memory() { return memory_.get(); }
Memory* FakeGpuDevice::pinned_memory() { return pinned_memory_.get(); }
StreamSignals* FakeGpuDevice::signals() { return signals_.get(); }

absl::StatusOr<std::unique_ptr<Stream>> FakeGpuDevice::NewStream(absl::string_view /*name*/) {
  return std::make_unique<FakeDeviceStream>(this);
}

absl::StatusOr<std::unique_ptr<Event>> FakeGpuDevice::NewEvent() {
  WEFT_ASSIGN_OR_RETURN(auto mark, gpu_.NewMark());
  return std::make_unique<FakeEvent>(std::move(mark));
}

void FakeGpuDevice::Fail() { *has_failed_ = true; }

}  // namespace weft::testing
