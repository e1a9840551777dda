#include "executor/gpu/gpu_api_testing.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "executor/gpu/gpu_collective.h"

namespace weft::testing {
namespace {

// Counts records, and those that streams have passed.
class Passage {
 public:
  int64_t Record() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ++recorded_;
  }
  int64_t recorded() {
    std::lock_guard<std::mutex> lock(mutex_);
    return recorded_;
  }
  void Pass(int64_t record) {
    std::lock_guard<std::mutex> lock(mutex_);
    passed_ = record;
    changed_.notify_all();
  }
  void WaitFor(int64_t record) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return passed_ >= record; });
  }
  bool HasPassed() {
    std::lock_guard<std::mutex> lock(mutex_);
    return passed_ == recorded_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t recorded_ = 0;
  int64_t passed_ = 0;
};

// May be destroyed before streams have passed it, as events of CUDA.
struct FakeMark : public GpuApi::Mark {
  const std::shared_ptr<Passage> passage = std::make_shared<Passage>();
};

const std::shared_ptr<Passage>& PassageOf(GpuApi::Mark* mark) {
  return static_cast<FakeMark*>(mark)->passage;
}
thread_local int current_device = 0;

FakeStream* AsFake(void* stream) { return static_cast<FakeStream*>(stream); }

}  // namespace

FakeStream::FakeStream() : thread_([this] { Work(); }) {}

FakeStream::~FakeStream() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void FakeStream::Enqueue(std::function<void()> task) {
  std::lock_guard<std::mutex> lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void FakeStream::Synchronize() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty() && !is_busy_; });
}

void FakeStream::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    is_busy_ = true;
    lock.unlock();
    task();
    lock.lock();
    is_busy_ = false;
    changed_.notify_all();
  }
}

std::set<int> FakeGpu::contexts() {
  std::lock_guard<std::mutex> lock(mutex_);
  return contexts_;
}

void FakeGpu::UseDevice() {
  std::lock_guard<std::mutex> lock(mutex_);
  contexts_.insert(current_device);
}

absl::StatusOr<int> FakeGpu::CurrentDevice() { return current_device; }

absl::Status FakeGpu::SetDevice(int device) {
  current_device = device;
  UseDevice();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GpuApi::Mark>> FakeGpu::NewMark() {
  UseDevice();
  return std::make_unique<FakeMark>();
}

absl::Status FakeGpu::Record(Mark* mark, void* stream) {
  UseDevice();
  const int64_t record = PassageOf(mark)->Record();
  AsFake(stream)->Enqueue([passage = PassageOf(mark), record] { passage->Pass(record); });
  return absl::OkStatus();
}

absl::Status FakeGpu::Wait(Mark* mark, void* stream) {
  UseDevice();
  const int64_t record = PassageOf(mark)->recorded();
  AsFake(stream)->Enqueue([passage = PassageOf(mark), record] { passage->WaitFor(record); });
  return absl::OkStatus();
}

bool FakeGpu::HasPassed(Mark* mark) {
  UseDevice();
  return PassageOf(mark)->HasPassed();
}

std::shared_ptr<void> FakeGpu::Allocate(size_t bytes) {
  UseDevice();
  return HostMemory()->Allocate(bytes);
}

absl::Status FakeGpu::Copy(const void* from, size_t bytes, void* to, void* stream) {
  AsFake(stream)->Enqueue([=] {
    if (bytes > 0 && from != to) std::memcpy(to, from, bytes);
  });
  return absl::OkStatus();
}

absl::Status FakeGpu::RunCollective(const CollectiveDesc& desc, absl::Span<const void* const> in,
                                    absl::Span<void* const> out, int part, int num_parts,
                                    void* stream) {
  AsFake(stream)->Enqueue([=, ins = std::vector<const void*>(in.begin(), in.end()),
                           outs = std::vector<void*>(out.begin(), out.end())]() mutable {
    (void)RunGpuCollective(desc, ins, absl::MakeSpan(outs), part, num_parts, nullptr);
  });
  return absl::OkStatus();
}

}  // namespace weft::testing
