#include "tests/support/stream_sanitizer.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "executor/communicators/communicator_decorators.h"
#include "executor/files/checkpoint.h"
#include "executor/streams/thread_stream.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/memory.h"
#include "ops/tensor.h"

namespace weft::testing {

class AccessChecker;

namespace {

// By stream of a device: how many of its tasks come before.
class Clock {
 public:
  uint32_t at(int stream) const {
    return stream < static_cast<int>(counts_.size()) ? counts_[stream] : 0;
  }
  void Advance(int stream) {
    Reserve(stream + 1);
    ++counts_[stream];
  }
  void Join(const Clock& other) {
    Reserve(other.counts_.size());
    for (size_t i = 0; i < other.counts_.size(); ++i) {
      counts_[i] = std::max(counts_[i], other.counts_[i]);
    }
  }

 private:
  void Reserve(size_t size) { counts_.resize(std::max(size, counts_.size())); }

  std::vector<uint32_t> counts_;
};

// The task that a thread runs.
struct RunningTask {
  AccessChecker* checker;
  int stream;
  Clock clock;
};
thread_local const RunningTask* running_task = nullptr;

struct Access {
  int stream = -1;  // -1: none
  uint32_t time = 0;
  std::string op;
};

// Bytes up to `end` with the same accesses.
struct Segment {
  uintptr_t end = 0;
  Access write;
  std::vector<Access> reads;  // since the write: the last one of each stream
};

}  // namespace

// Of one device.
class AccessChecker {
 public:
  AccessChecker(StreamSanitizer* sanitizer, uint64_t seed) : sanitizer_(*sanitizer), draws_(seed) {}

  int AddStream(absl::string_view name) {
    streams_.emplace_back(name);
    return static_cast<int>(streams_.size()) - 1;
  }
  std::chrono::microseconds DrawDelay() {
    const int most = sanitizer_.max_delay_us_;
    return std::chrono::microseconds(
        std::max(0, std::uniform_int_distribution<int>(-3 * most, most)(draws_)));
  }

  void AddBlock(const void* data, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_[reinterpret_cast<uintptr_t>(data)] = bytes;
  }
  void RemoveBlock(const void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const auto block = blocks_.find(begin);
    segments_.erase(segments_.lower_bound(begin), segments_.lower_bound(begin + block->second));
    blocks_.erase(block);
  }

  void Note(const RunningTask& task, const std::string& op, const void* data, size_t bytes,
            bool writes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto begin = reinterpret_cast<uintptr_t>(data);
    auto block = blocks_.upper_bound(begin);
    if (bytes == 0 || block == blocks_.begin()) return;
    --block;
    if (begin + bytes > block->first + block->second) return;  // not of the device
    sanitizer_.CountAccess();
    const Access access = {task.stream, task.clock.at(task.stream), op};
    Split(begin, block->first, block->first + block->second);
    Split(begin + bytes, block->first, block->first + block->second);
    for (auto it = segments_.lower_bound(begin); it != segments_.end() && it->first < begin + bytes;
         ++it) {
      Segment& segment = it->second;
      Compare(task, access, writes, segment.write, "written");
      if (writes) {
        for (const Access& read : segment.reads) Compare(task, access, writes, read, "read");
        segment.write = access;
        segment.reads.clear();
        continue;
      }
      const auto own = absl::c_find_if(
          segment.reads, [&](const Access& read) { return read.stream == access.stream; });
      if (own == segment.reads.end()) {
        segment.reads.push_back(access);
      } else {
        *own = access;
      }
    }
  }

 private:
  // Makes a segment of the block begin at `at`.
  void Split(uintptr_t at, uintptr_t block_begin, uintptr_t block_end) {
    if (at == block_end || segments_.count(at) > 0) return;
    auto next = segments_.upper_bound(at);
    if (next == segments_.begin() || std::prev(next)->first < block_begin) {
      segments_[block_begin] = {block_end, {}, {}};
      next = segments_.upper_bound(at);
      if (at == block_begin) return;
    }
    Segment& before = std::prev(next)->second;
    Segment after = before;
    before.end = at;
    segments_[at] = std::move(after);
  }

  void Compare(const RunningTask& task, const Access& access, bool writes, const Access& other,
               absl::string_view done) {
    if (other.stream < 0 || task.clock.at(other.stream) >= other.time) return;
    sanitizer_.Report(absl::StrCat(access.op, " on stream ", streams_[access.stream],
                                   writes ? " writes" : " reads", " what ", other.op, " on stream ",
                                   streams_[other.stream], " has ", done));
  }

  StreamSanitizer& sanitizer_;
  // Of the thread that launches work.
  std::mt19937_64 draws_;
  std::deque<std::string> streams_;
  std::mutex mutex_;  // guards the rest
  std::map<uintptr_t, size_t> blocks_;
  std::map<uintptr_t, Segment> segments_;  // by begin; those of a block follow each other
};

namespace {

class CheckedMemory : public Memory {
 public:
  explicit CheckedMemory(std::shared_ptr<AccessChecker> checker) : checker_(std::move(checker)) {}

  bool IsHost() const override { return true; }
  std::shared_ptr<void> Allocate(size_t bytes) override {
    std::shared_ptr<void> block = HostMemory()->Allocate(bytes);
    void* const data = block.get();
    checker_->AddBlock(data, bytes);
    return std::shared_ptr<void>(data,
                                 [checker = checker_, block = std::move(block)](void* p) mutable {
                                   checker->RemoveBlock(p);
                                   block = nullptr;
                                 });
  }
  absl::Status CopyFromHost(const void* from, size_t bytes, void* to) override {
    return HostMemory()->CopyFromHost(from, bytes, to);
  }
  absl::Status CopyToHost(const void* from, size_t bytes, void* to) override {
    return HostMemory()->CopyToHost(from, bytes, to);
  }
  absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) override {
    return HostMemory()->Copy(from, bytes, to, stream);
  }

 private:
  const std::shared_ptr<AccessChecker> checker_;
};

struct CheckedEvent : public Event {
  explicit CheckedEvent(std::unique_ptr<Event> event) : inner(std::move(event)) {}

  const std::unique_ptr<Event> inner;
  Clock clock;  // of the last record
};

// The thread that launches work keeps the clocks; tasks take theirs along.
class CheckedStream : public Stream {
 public:
  CheckedStream(std::unique_ptr<Stream> stream, int number, AccessChecker* checker, Clock* host)
      : stream_(std::move(stream)), number_(number), checker_(*checker), host_(*host) {}

  void Launch(Task task) override {
    clock_.Join(host_);
    clock_.Advance(number_);
    stream_->Launch([running = RunningTask{&checker_, number_, clock_},
                     delay = checker_.DrawDelay(), task = std::move(task)] {
      if (delay.count() > 0) std::this_thread::sleep_for(delay);
      running_task = &running;
      absl::Status status = task();
      running_task = nullptr;
      return status;
    });
  }
  void Record(Event* event) override {
    auto* const checked = static_cast<CheckedEvent*>(event);
    checked->clock = clock_;
    stream_->Record(checked->inner.get());
  }
  void Wait(Event* event) override {
    auto* const checked = static_cast<CheckedEvent*>(event);
    clock_.Join(checked->clock);
    stream_->Wait(checked->inner.get());
  }
  void Flush() override { stream_->Flush(); }
  absl::Status Synchronize() override {
    absl::Status status = stream_->Synchronize();
    host_.Join(clock_);
    return status;
  }

 private:
  const std::unique_ptr<Stream> stream_;
  const int number_;
  AccessChecker& checker_;
  Clock& host_;
  Clock clock_;
};

class CheckedDevice : public Device {
 public:
  CheckedDevice(std::shared_ptr<AccessChecker> checker, Memory* memory)
      : checker_(std::move(checker)), memory_(*memory), threads_(NewHostDevice(memory)) {}

  Memory* memory() override { return &memory_; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(absl::string_view name) override {
    return Checked(threads_->NewStream(name), name);
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewComputeStream(absl::string_view name) override {
    return Checked(threads_->NewComputeStream(name), name);
  }
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override {
    WEFT_ASSIGN_OR_RETURN(auto event, threads_->NewEvent());
    return std::make_unique<CheckedEvent>(std::move(event));
  }

 private:
  absl::StatusOr<std::unique_ptr<Stream>> Checked(absl::StatusOr<std::unique_ptr<Stream>> stream,
                                                  absl::string_view name) {
    WEFT_RETURN_IF_ERROR(stream.status());
    return std::make_unique<CheckedStream>(*std::move(stream), checker_->AddStream(name),
                                           checker_.get(), &host_);
  }

  const std::shared_ptr<AccessChecker> checker_;
  Memory& memory_;
  const std::unique_ptr<Device> threads_;
  Clock host_;
};

void Note(const std::string& op, const void* data, size_t bytes, bool writes) {
  if (running_task != nullptr) {
    running_task->checker->Note(*running_task, op, data, bytes, writes);
  }
}
void Note(const std::string& op, const Tensor* tensor, bool writes) {
  if (tensor != nullptr && tensor->allocated()) Note(op, tensor->raw(), tensor->bytes(), writes);
}

// Arguments that the kernel leaves alone: unread inputs, and views that lie where their inputs do.
struct Untouched {
  std::set<int> inputs, outputs;

  Untouched(const Kernel& kernel, const KernelContext& ctx)
      : inputs(kernel.unread.begin(), kernel.unread.end()) {
    for (const auto& [output, input] : kernel.views) {
      const Tensor* const to = ctx.outputs[output];
      const Tensor* const from = ctx.inputs[input];
      if (to == nullptr || from == nullptr || !to->allocated() || !from->allocated()) continue;
      if (to->raw() != from->raw()) continue;
      inputs.insert(input);
      outputs.insert(output);
    }
  }
};

absl::Status RunChecked(const Kernel& kernel, const std::string& op, const KernelStep& step,
                        const KernelContext& ctx) {
  const Untouched untouched(kernel, ctx);
  for (size_t i = 0; i < ctx.inputs.size(); ++i) {
    if (untouched.inputs.count(static_cast<int>(i)) == 0) Note(op, ctx.inputs[i], false);
  }
  WEFT_RETURN_IF_ERROR(step(ctx));
  for (size_t i = 0; i < ctx.outputs.size(); ++i) {
    if (untouched.outputs.count(static_cast<int>(i)) == 0) Note(op, ctx.outputs[i], true);
  }
  return absl::OkStatus();
}

KernelFactory CheckedFactory(const KernelFactory& factory, const std::string& op) {
  return [factory, op](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
    WEFT_ASSIGN_OR_RETURN(Kernel kernel, factory(spec));
    if (op == "coalesce_tensor") return kernel;  // it finds places for values
    kernel.prepare = [kernel, op](const KernelContext& types) -> absl::StatusOr<KernelStep> {
      WEFT_ASSIGN_OR_RETURN(KernelStep step, kernel.prepare(types));
      return KernelStep([kernel, op, step = std::move(step)](const KernelContext& ctx) {
        return RunChecked(kernel, op, step, ctx);
      });
    };
    return kernel;
  };
}

class CheckedCommunicator : public DecoratedCommunicator {
 public:
  using DecoratedCommunicator::DecoratedCommunicator;

  absl::Status Run(const CollectiveCall& call, const void* in, void* out) override {
    const CollectiveDesc& desc = call.desc;
    const std::string op = absl::StrCat(CollectiveKindName(desc.kind), " of ", call.variable);
    const size_t bytes = desc.count * SizeOf(desc.dtype);
    const bool is_broadcast = desc.kind == CollectiveKind::kBroadcast;
    if (in != nullptr && (!is_broadcast || desc.root == rank())) Note(op, in, bytes, false);
    WEFT_RETURN_IF_ERROR(inner_.Run(call, in, out));
    if (out == nullptr) return absl::OkStatus();
    const size_t out_bytes = desc.kind == CollectiveKind::kAllGather       ? bytes * nranks()
                             : desc.kind == CollectiveKind::kReduceScatter ? bytes / nranks()
                                                                           : bytes;
    Note(op, out, out_bytes, true);
    return absl::OkStatus();
  }
};

}  // namespace

void StreamSanitizer::Use(RunOptions* options) {
  options->kernels = Checked(*options->kernels);
  options->new_device = [this](int, Memory*) { return NewDevice(); };
  options->new_group =
      [this, make = options->new_group](
          GroupOptions group) -> absl::StatusOr<std::unique_ptr<CommunicatorGroup>> {
    WEFT_ASSIGN_OR_RETURN(auto made, make(std::move(group)));
    return Checked(std::move(made));
  };
}

std::unique_ptr<Device> StreamSanitizer::NewDevice() {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto checker = std::make_shared<AccessChecker>(this, seed_ + memories_.size());
  memories_.push_back(std::make_unique<CheckedMemory>(checker));
  return std::make_unique<CheckedDevice>(std::move(checker), memories_.back().get());
}

const KernelTable* StreamSanitizer::Checked(const KernelTable& kernels) {
  KernelTable& table = tables_.emplace_back();
  for (const std::string& type : kernels.op_types()) {
    table.Add(type, CheckedFactory(*kernels.Find(type), type));
  }
  for (const std::string& type : kernels.op_types_for_rows()) {
    table.AddForRows(type, CheckedFactory(*kernels.FindForRows(type), type));
  }
  return &table;
}

std::unique_ptr<CommunicatorGroup> StreamSanitizer::Checked(
    std::unique_ptr<CommunicatorGroup> group) {
  return NewDecoratedGroup(std::move(group), [](const RingKey&, int, Communicator* inner) {
    return std::make_unique<CheckedCommunicator>(inner);
  });
}

void StreamSanitizer::CountAccess() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++num_accesses_;
}

void StreamSanitizer::Report(std::string report) {
  const std::lock_guard<std::mutex> lock(mutex_);
  reports_.insert(std::move(report));
}

std::set<std::string> StreamSanitizer::reports() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return reports_;
}

int64_t StreamSanitizer::num_accesses() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_accesses_;
}

namespace {

// They outlive the sanitizer's memory.
absl::Status MoveToHost(std::map<std::string, Tensor>* tensors) {
  for (auto& [name, value] : *tensors) {
    Tensor on_host;
    WEFT_RETURN_IF_ERROR(on_host.CopyFrom(value));
    value = std::move(on_host);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunResult> RunSanitized(const RunInputs& inputs, RunOptions options) {
  StreamSanitizer sanitizer(/*seed=*/options.steps, /*max_delay_us=*/20);
  sanitizer.Use(&options);
  RunInputs checked = inputs;
  if (inputs.on_checkpoint != nullptr) {
    checked.on_checkpoint = [&inputs](Checkpoint checkpoint) -> absl::Status {
      WEFT_RETURN_IF_ERROR(MoveToHost(&checkpoint.shared));
      for (auto& own : checkpoint.own) WEFT_RETURN_IF_ERROR(MoveToHost(&own));
      return inputs.on_checkpoint(std::move(checkpoint));
    };
  }
  WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(checked, options));
  const std::set<std::string> reports = sanitizer.reports();
  if (!reports.empty()) return absl::InternalError(absl::StrJoin(reports, "; "));
  if (sanitizer.num_accesses() == 0) return absl::InternalError("the sanitizer has seen nothing");
  WEFT_RETURN_IF_ERROR(MoveToHost(&result.persistables));
  return result;
}

absl::StatusOr<RunResult> RunChecked(const RunInputs& inputs, const RunOptions& options) {
  const bool is_checked = options.nranks <= 2 && options.link == nullptr &&
                          options.num_servers == 0 && options.host_kernels == nullptr &&
                          !IsOnTwoDevices(*inputs.main);
  return is_checked ? RunSanitized(inputs, options) : RunProgram(inputs, options);
}

}  // namespace weft::testing
