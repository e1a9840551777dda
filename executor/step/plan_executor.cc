#include "executor/step/plan_executor.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/step/step_calls.h"
#include "ops/make_kernel.h"
#include "ops/threads.h"

namespace weft {
namespace {

// Steps bound to different types that are kept: batches of a few sizes, such as the last one of an
// epoch.
constexpr size_t kMaxSteps = 8;

// What values take, as far as it is known.
std::string NeedsText(const ValueMemory& memory) {
  const auto text = [](int64_t kept, int64_t live) {
    return absl::StrCat(kept, " bytes kept between steps and ", live, " in a step");
  };
  if (!memory.on_two_devices) return text(memory.kept, memory.live);
  return absl::StrCat("on the accelerator ", text(memory.kept, memory.live), ", on the host ",
                      text(memory.host_kept, memory.host_live));
}

// The argument of a copy between two memories that lies on the host.
int HostVariable(const Plan::PlanOp& copy) {
  return copy.device == DeviceKind::kHost ? copy.inputs[0] : copy.outputs[0];
}

// What ops read; what a rank passes to a collective.
int64_t BytesOfInputs(const StepCall& call) {
  int64_t bytes = 0;
  ForEachOp(call, [&](const OpCall& op) {
    for (const Tensor* tensor : op.inputs) {
      if (tensor != nullptr && tensor->allocated()) bytes += static_cast<int64_t>(tensor->bytes());
      if (op.op->ring_work() != nullptr) break;  // the condition of a collective follows
    }
  });
  return bytes;
}

// Without times.
OpSpan SpanOf(const StepCall& call) {
  OpSpan span = {FirstOp(call)->index, {}, {}};
  ForEachOp(call, [&](const OpCall& op) { span.parts.push_back(op.index); });
  if (span.parts.size() == 1) span.parts.clear();
  return span;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlanExecutor>> PlanExecutor::Create(
    const PlanExecutorOptions& options) {
  auto executor = std::unique_ptr<PlanExecutor>(new PlanExecutor(options));
  WEFT_RETURN_IF_ERROR(executor->Init());
  return executor;
}

PlanExecutor::~PlanExecutor() { (void)UnregisterBuffers(); }

absl::Status PlanExecutor::Init() {
  const Plan& plan = *options_.plan;
  resources_.plan = &plan;
  resources_.accesses = &accesses_;
  resources_.random = options_.random;
  resources_.place = options_.place;
  resources_.memories = {options_.device->memory(), options_.host_memory};
  resources_.arena_memories = resources_.memories;
  Memory* const pinned = options_.device->pinned_memory();
  if (plan.on_two_devices && pinned != nullptr) {
    resources_.arena_memories[static_cast<int>(DeviceKind::kHost)] = pinned;
  }
  WEFT_RETURN_IF_ERROR(MakeFault());
  WEFT_RETURN_IF_ERROR(BindVariables());
  const bool is_plain = absl::c_all_of(plan.instructions, [](const Plan::Instruction& each) {
    return each.kind == Plan::Instruction::Kind::kRunOp && each.stream == 0;
  });
  if (options_.next_ops && !is_plain) {
    return absl::InvalidArgumentError(
        "a step that runs in ranges of ops: expected one stream and no blocks");
  }
  resources_.is_accessed.resize(plan.variables.size(), false);
  for (int v : options_.accessed) resources_.is_accessed[v] = true;
  resources_.joins_ops = !options_.next_ops && options_.device->memory()->IsHost();
  for (const RingKey& ring : plan.rings) {
    resources_.communicators.push_back(OutsideOfRing());
    if (!ring.Has(options_.rank)) continue;
    WEFT_ASSIGN_OR_RETURN(resources_.communicators.back(),
                          options_.group->Get(ring, options_.rank));
  }
  for (const Plan::PlanOp& op : plan.ops) {
    resources_.kernels.emplace_back();
    if (op.factory() == nullptr) continue;
    WEFT_ASSIGN_OR_RETURN(resources_.kernels.back(), MakeKernel(*op.factory(), op.kernel_spec));
  }
  if (options_.trace) {
    num_launched_.resize(plan.stream_names.size());
    spans_.resize(plan.stream_names.size());
    waits_.resize(plan.stream_names.size());
    records_.resize(plan.num_events);
    marked_.resize(plan.stream_names.size());
  }
  for (int i = 0; i < plan.num_events; ++i) {
    WEFT_ASSIGN_OR_RETURN(events_.emplace_back(), options_.device->NewEvent());
  }
  const absl::string_view host_stream = DeviceStreamName(DeviceStream::Kind::kHost);
  for (const std::string& stream : plan.stream_names) {
    const std::string name = absl::StrCat(options_.rank, " ", stream);
    const bool is_of_host = plan.on_two_devices && stream == host_stream;
    if (is_of_host && !options_.device->memory()->IsHost()) {
      host_thread_ = static_cast<int>(streams_.size());
    }
    WEFT_ASSIGN_OR_RETURN(streams_.emplace_back(),
                          streams_.empty() ? options_.device->NewComputeStream(name)
                          : is_of_host     ? options_.device->NewHostStream(name)
                                           : options_.device->NewStream(name));
    resources_.native_streams.push_back(streams_.back()->native_handle());
  }
  WEFT_RETURN_IF_ERROR(CheckCollectives());
  ops_.emplace(OpRunner::Options{&resources_, options_.device, streams_, host_thread_,
                                 options_.servers, options_.check_nan});
  graph_.emplace(options_.graph, options_.device, streams_);
  return absl::OkStatus();
}

// In memory that the device writes, too.
absl::Status PlanExecutor::MakeFault() {
  Memory* const pinned = options_.device->pinned_memory();
  try {
    resources_.fault = std::static_pointer_cast<DeviceFault>(
        (pinned != nullptr ? pinned : HostMemory())->Allocate(sizeof(DeviceFault)));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory that host and device share");
  }
  new (resources_.fault.get()) DeviceFault;
  return absl::OkStatus();
}

// What the device has found wrong, by the name of the op. Call it when the device is idle.
absl::Status PlanExecutor::CheckFault() const {
  const DeviceFault& fault = *resources_.fault;
  if (fault.is_set == 0) return absl::OkStatus();
  return Failed(options_.plan->ops[fault.op].name, ToStatus(fault));
}

absl::Status PlanExecutor::CheckCollectives() const {
  if (host_thread_ < 0) return absl::OkStatus();
  for (const Plan::PlanOp& op : options_.plan->ops) {
    if (op.ring_work() == nullptr || op.device != DeviceKind::kHost) continue;
    return absl::UnimplementedError(
        absl::StrCat(op.name,
                     ": expected a collective on variables of the accelerator, whose ranks "
                     "communicate, found one on the host"));
  }
  return absl::OkStatus();
}

// Moves to page-locked memory the persistable values of the host that copies read or write; but not
// those that share memory with others, or may in a step.
void PlanExecutor::PinValues() {
  const Plan& plan = *options_.plan;
  Memory* const pinned = options_.device->pinned_memory();
  if (!plan.on_two_devices || pinned == nullptr) return;
  pinned_.resize(plan.variables.size(), nullptr);
  const auto address = [](const void* data) { return reinterpret_cast<uintptr_t>(data); };
  std::vector<std::pair<uintptr_t, int>> begins;  // addresses of values, and variables
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    const Plan::Variable& variable = plan.variables[v];
    const Tensor& tensor = *resources_.tensors[v];
    if (variable.memory != DeviceKind::kHost || !tensor.allocated()) continue;
    begins.emplace_back(address(tensor.raw()), static_cast<int>(v));
  }
  std::sort(begins.begin(), begins.end());
  std::vector<bool> is_alone(plan.variables.size(), false);
  uintptr_t end = 0;  // of the values so far
  for (size_t i = 0; i < begins.size(); ++i) {
    const auto [begin, v] = begins[i];
    const uintptr_t own_end = begin + std::max<uintptr_t>(1, resources_.tensors[v]->bytes());
    const bool is_last = i + 1 == begins.size();
    is_alone[v] = begin >= end && (is_last || begins[i + 1].first >= own_end);
    end = std::max(end, own_end);
  }
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    if (!plan.variables[v].persistable || accesses_.is_loose[v]) is_alone[v] = false;
  }
  for (const Plan::PlanOp& op : plan.ops) {
    if (op.factory() == nullptr || op.reads_inputs) continue;
    for (int v : op.outputs) {  // in one buffer
      if (v != Plan::kNoVariable) is_alone[v] = false;
    }
  }
  for (const Plan::PlanOp& op : plan.ops) {
    const int v = op.Is<Plan::CopyWork>() ? HostVariable(op) : Plan::kNoVariable;
    if (v == Plan::kNoVariable || !is_alone[v]) continue;
    Tensor* const tensor = resources_.tensors[v];
    if (tensor->is_rows() || tensor->raw() == pinned_[v]) continue;
    std::shared_ptr<void> block;
    try {
      block = pinned->Allocate(std::max<size_t>(1, tensor->bytes()));
    } catch (const std::bad_alloc&) {
      continue;  // the system locks no more: copies wait for the host
    }
    if (tensor->bytes() > 0) std::memcpy(block.get(), tensor->raw(), tensor->bytes());
    // Not of the pinned memory, which does not outlive the device: values do.
    *tensor = Tensor::Wrap(tensor->dtype(), tensor->dims(), block, block.get(), tensor->memory());
    pinned_[v] = block.get();
  }
}

// Finds out which ops of a device must be launched after the host's work that comes first. Not
// copies that take their elements later, from or to memory that stays where it is; or what they
// take is there.
void PlanExecutor::FindEarlyCopies() {
  if (host_thread_ < 0) return;
  const bool has_pinned = options_.device->pinned_memory() != nullptr;
  for (StepCall& call : step_->calls()) {
    call.reads_host_now = false;
    if (call.stream == host_thread_) continue;
    // A static op has the types of the bound step.
    ForEachOp(call, [&](const OpCall& op) { call.reads_host_now |= !op.is_static; });
    const auto* const copy = std::get_if<CopyCall>(&call.work);
    if (copy == nullptr || !copy->is_static) continue;
    const Plan::PlanOp& op = *copy->op;
    const int v = HostVariable(op);
    const Tensor& tensor = *resources_.tensors[v];
    const bool is_pinned =
        has_pinned && (IsInArena(tensor) || (tensor.allocated() && tensor.raw() == pinned_[v]));
    const bool is_there = op.device == DeviceKind::kHost && !options_.plan->variables[v].is_written;
    call.reads_host_now = !is_pinned && !is_there;
  }
}

absl::Status PlanExecutor::BindVariables() {
  for (const Plan::Variable& variable : options_.plan->variables) {
    Value* value =
        variable.persistable ? options_.scope->FindOrCreate(variable.name) : &local_.emplace_back();
    Memory* const memory = resources_.MemoryOf(variable.memory);
    if (!value->tensor.allocated()) {
      value->tensor = Tensor(memory);
    } else if (value->tensor.memory() != memory) {
      const Tensor elsewhere = std::move(value->tensor);
      value->tensor = Tensor(memory);
      try {
        WEFT_RETURN_IF_ERROR(value->tensor.CopyFrom(elsewhere));
      } catch (const std::bad_alloc&) {
        return absl::ResourceExhaustedError(absl::StrCat("out of memory for variable ",
                                                         variable.name, ", ", elsewhere.bytes(),
                                                         " bytes kept between steps"));
      }
    }
    resources_.values.push_back(value);
    resources_.tensors.push_back(&value->tensor);
  }
  return absl::OkStatus();
}

absl::Status PlanExecutor::Bind() {
  try {
    if (step_ == nullptr || !step_->Fits()) {
      WEFT_RETURN_IF_ERROR(UnregisterBuffers());
      PinValues();
      BindStep();
      FindEarlyCopies();
      WEFT_RETURN_IF_ERROR(RegisterBuffers());
    }
    step_->OwnValues();
  } catch (const std::bad_alloc&) {
    const std::string needs = NeedsText(memory());
    if (!steps_.empty()) steps_.back()->Leave();
    step_ = nullptr;
    return absl::ResourceExhaustedError(
        absl::StrCat("out of memory for the values of a step: ", needs));
  }
  return absl::OkStatus();
}

absl::Status PlanExecutor::RunStep() {
  for (std::vector<OpSpan>& spans : spans_) spans.clear();
  for (std::vector<WaitSpan>& waits : waits_) waits.clear();
  absl::c_fill(num_launched_, 0);
  const auto restore = absl::MakeCleanup([before = KernelThreads()] { SetKernelThreads(before); });
  SetKernelThreads(options_.threads);
  WEFT_RETURN_IF_ERROR(Bind());
  WEFT_RETURN_IF_ERROR(step_->ClearNewBuffers());
  absl::Status status = Launch();
  // What a device makes of results that the host lacks comes after the host's error.
  if (host_thread_ >= 0) {
    const absl::Status host = streams_[host_thread_]->Synchronize();
    if (!host.ok()) status = host;
  }
  for (const std::unique_ptr<Stream>& stream : streams_) status.Update(stream->Synchronize());
  // Other errors may follow from it.
  const absl::Status fault = CheckFault();
  if (!fault.ok()) status = fault;
  for (Communicator* communicator : resources_.communicators) status.Update(communicator->Check());
  if (status.ok() && options_.trace) status = ReadMarkedTimes();
  return status;
}

// The ops of the step ran between two marks each.
absl::Status PlanExecutor::ReadMarkedTimes() {
  for (size_t s = 0; s < streams_.size(); ++s) {
    WEFT_ASSIGN_OR_RETURN(const auto times, streams_[s]->TakeTimes());
    for (size_t i = 0; i < marked_[s].size() && 2 * i + 1 < times.size(); ++i) {
      OpSpan& span = spans_[s].emplace_back(std::move(marked_[s][i]));
      span.begin = times[2 * i];
      span.end = times[2 * i + 1];
    }
    marked_[s].clear();
  }
  return absl::OkStatus();
}

// Those that stay where they are until the next step is bound: fused buffers, for instance.
absl::Status PlanExecutor::RegisterBuffers() {
  absl::Status status;
  for (const StepCall& call : step_->calls()) {
    ForEachOp(call, [&](const OpCall& op) {
      const Plan::RingWork* const work = op.op->ring_work();
      if (work == nullptr || !op.is_static || op.outputs.empty() || !status.ok()) return;
      const int variable = op.op->outputs[0];
      Tensor& tensor = *op.outputs[0];
      if (options_.plan->variables[variable].persistable || resources_.is_accessed[variable] ||
          IsInArena(tensor) || tensor.bytes() == 0) {
        return;
      }
      Communicator* const communicator = resources_.communicators[work->ring];
      status = communicator->Register(tensor.raw(), tensor.bytes());
      if (status.ok()) registered_.emplace_back(communicator, tensor.raw());
    });
  }
  return status;
}

absl::Status PlanExecutor::UnregisterBuffers() {
  absl::Status status;
  for (const auto& [communicator, buffer] : registered_) {
    status.Update(communicator->Unregister(buffer));
  }
  registered_.clear();
  return status;
}

bool PlanExecutor::IsInArena(const Tensor& tensor) const {
  const auto address = [](const void* data) { return reinterpret_cast<uintptr_t>(data); };
  const uintptr_t begin = address(tensor.raw());
  return absl::c_any_of(arenas_, [&](const Arena& arena) {
    const uintptr_t start = address(arena.memory.get());
    return start <= begin && begin < start + arena.bytes;
  });
}

ValueMemory PlanExecutor::memory() const {
  constexpr DeviceKind kAccelerator = DeviceKind::kAccelerator, kHost = DeviceKind::kHost;
  ValueMemory memory;
  memory.on_two_devices = options_.plan->on_two_devices;
  memory.kept = KeptBytes(kAccelerator);
  memory.arena = arenas_[static_cast<int>(kAccelerator)].bytes;
  memory.host_kept = KeptBytes(kHost);
  memory.host_arena = arenas_[static_cast<int>(kHost)].bytes;
  for (const std::unique_ptr<BoundStep>& step : steps_) {
    memory.live = std::max(memory.live, step->live_bytes(kAccelerator));
    memory.host_live = std::max(memory.host_live, step->live_bytes(kHost));
  }
  return memory;
}

int64_t PlanExecutor::KeptBytes(DeviceKind device) const {
  const auto address = [](const void* data) { return reinterpret_cast<uintptr_t>(data); };
  std::vector<std::pair<uintptr_t, uintptr_t>> values;  // begin, end; they may share memory
  for (size_t v = 0; v < resources_.tensors.size(); ++v) {
    const Tensor* const tensor = resources_.tensors[v];
    if (!tensor->allocated() || options_.plan->variables[v].memory != device) continue;
    const uintptr_t begin = address(tensor->raw());
    if (!IsInArena(*tensor)) values.emplace_back(begin, begin + tensor->bytes());
  }
  std::sort(values.begin(), values.end());
  int64_t kept = 0;
  uintptr_t counted = 0;  // up to here
  for (const auto& [begin, end] : values) {
    if (end <= counted) continue;
    kept += static_cast<int64_t>(end - std::max(begin, counted));
    counted = end;
  }
  return kept;
}

void PlanExecutor::BindStep() {
  const int64_t changes_before = graph_->memory_changes();
  if (step_ != nullptr) step_->Leave();
  step_ = nullptr;
  auto found =
      std::find_if(steps_.begin(), steps_.end(), [](const auto& step) { return step->Fits(); });
  if (found == steps_.end()) {
    if (steps_.size() == kMaxSteps) {
      graph_->Forget(steps_.front().get());
      steps_.erase(steps_.begin());
    }
    steps_.push_back(std::make_unique<BoundStep>(resources_));
  } else {
    std::rotate(found, found + 1, steps_.end());
  }
  steps_.back()->Enter(&arenas_);
  step_ = steps_.back().get();
  if (options_.graph != GraphMode::kOff) graph_->Enter(step_, changes_before, GraphObstacle());
}

std::string PlanExecutor::GraphObstacle() const {
  if (options_.trace) return "the times of ops are measured";
  if (options_.check_nan) return "the host looks at each result for a NaN";
  return FindGraphObstacle(*options_.plan, *step_);
}

absl::Status PlanExecutor::Launch() {
  if (options_.graph == GraphMode::kOff) return LaunchAll();
  addresses_.clear();
  step_->AddAddresses(&addresses_);
  return graph_->Run([this] { return LaunchAll(); }, addresses_);
}

absl::Status PlanExecutor::LaunchAll() {
  if (options_.next_ops) return LaunchRanges();
  return LaunchCalls(0, static_cast<int>(step_->calls().size()));
}

absl::Status PlanExecutor::LaunchRanges() {
  const std::vector<StepCall>& calls = step_->calls();
  // Of the first call that runs this op or a later one.
  const auto position = [&calls](int op) {
    const auto found = absl::c_partition_point(
        calls, [op](const StepCall& call) { return FirstOp(call)->index < op; });
    return static_cast<int>(found - calls.begin());
  };
  for (;;) {
    WEFT_ASSIGN_OR_RETURN(const absl::optional<OpRange> ops, options_.next_ops());
    if (!ops.has_value()) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(LaunchCalls(position(ops->begin), position(ops->end)));
    WEFT_RETURN_IF_ERROR(streams_[0]->Synchronize());
  }
}

absl::Status PlanExecutor::LaunchCalls(int begin, int end) {
  const std::vector<StepCall>& calls = step_->calls();
  const std::vector<Plan::Branch>& branches = step_->branches();
  frames_.clear();
  TrackIteration();
  for (int next = begin;;) {
    while (!frames_.empty() && next == branches[frames_.back().branch].end) {
      WEFT_ASSIGN_OR_RETURN(next, EndBlock());
    }
    if (next == end) return absl::OkStatus();
    const int current = next++;
    const StepCall& call = calls[current];
    Stream* stream = streams_[call.stream].get();
    if (const auto* const record = std::get_if<RecordCall>(&call.work)) {
      if (options_.trace) records_[record->event] = {call.stream, num_launched_[call.stream]};
      stream->Record(events_[record->event].get());
    } else if (const auto* const wait = std::get_if<WaitCall>(&call.work)) {
      if (options_.trace && !stream->MarksTimes()) {
        LaunchTracedWait(call.stream, wait->event);
      } else {
        stream->Wait(events_[wait->event].get());
      }
    } else if (std::holds_alternative<SynchronizeCall>(call.work)) {
      streams_[0]->Flush();
      WEFT_RETURN_IF_ERROR(stream->Synchronize());
    } else if (const auto* const branch = std::get_if<BranchCall>(&call.work)) {
      WEFT_ASSIGN_OR_RETURN(next, Enter(branch->branch));
    } else {
      if (call.reads_host_now) WEFT_RETURN_IF_ERROR(streams_[host_thread_]->Synchronize());
      // Work of the host may come between any two ops of a device.
      const bool is_alone = host_thread_ >= 0 || (options_.trace && stream->MarksTimes());
      if (!is_alone) next = std::min(call.end_of_task, end);
      LaunchOps(current, next);
    }
  }
}

// Ops of one stream.
void PlanExecutor::LaunchOps(int begin, int end) {
  const StepCall& first = step_->calls()[begin];
  Stream* const stream = streams_[first.stream].get();
  const bool marks = options_.trace && stream->MarksTimes();
  if (options_.trace) num_launched_[first.stream] += end - begin;
  if (marks) stream->MarkTime();
  stream->Launch([this, begin, end] { return RunOps(begin, end); });
  if (!marks) return;
  stream->MarkTime();
  marked_[first.stream].push_back(SpanOf(first));
}

// The next instruction at a branch.
absl::StatusOr<int> PlanExecutor::Enter(int index) {
  const Plan::Branch& branch = step_->branches()[index];
  WEFT_ASSIGN_OR_RETURN(const bool holds, Holds(branch));
  if (!holds) return branch.next;
  // Nested blocks, each run by several ops, may take as long as a loop.
  WEFT_RETURN_IF_ERROR(CheckProgress());
  frames_.push_back({index, /*iterations=*/1, std::chrono::steady_clock::now()});
  if (branch.is_loop) TrackIteration();
  return branch.begin;
}

// The next instruction at the end of the innermost running block.
absl::StatusOr<int> PlanExecutor::EndBlock() {
  RunningBlock& frame = frames_.back();
  const Plan::Branch& branch = step_->branches()[frame.branch];
  if (branch.is_loop) {
    WEFT_ASSIGN_OR_RETURN(const bool holds, Holds(branch));
    if (holds) {
      ++frame.iterations;
      TrackIteration();
      WEFT_RETURN_IF_ERROR(CheckProgress());
      return branch.begin;
    }
  }
  frames_.pop_back();
  if (branch.is_loop) TrackIteration();
  return branch.next;
}

void PlanExecutor::TrackIteration() {
  loop_ = {-1, 0, {}};
  for (const RunningBlock& frame : frames_) {
    if (step_->branches()[frame.branch].is_loop) loop_ = frame;
  }
}

// For the outermost running block.
absl::Status PlanExecutor::CheckProgress() const {
  if (frames_.empty()) return absl::OkStatus();
  if (options_.is_aborted && options_.is_aborted()) {
    return absl::AbortedError("the run was aborted");
  }
  const RunningBlock& outermost = frames_.front();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - outermost.start;
  if (seconds.count() <= options_.timeout_s) return absl::OkStatus();
  const Plan::Branch& branch = step_->branches()[outermost.branch];
  std::string message = absl::StrCat("its block has run for more than ", options_.timeout_s, " s");
  if (branch.is_loop) absl::StrAppend(&message, ", in iteration ", outermost.iterations);
  if (branch.is_loop && branch.test == Plan::Branch::Test::kTrue) {
    absl::StrAppend(&message, "; condition ", NameOf(branch.conditions[0]), " still holds");
  }
  return Failed(branch.name, absl::DeadlineExceededError(message));
}

absl::StatusOr<bool> PlanExecutor::Holds(const Plan::Branch& branch) {
  if (branch.stream != 0) streams_[0]->Flush();
  WEFT_RETURN_IF_ERROR(streams_[branch.stream]->Synchronize());
  if (resources_.fault->is_set != 0) {  // a kernel of another stream may still write it
    for (const std::unique_ptr<Stream>& stream : streams_) (void)stream->Synchronize();
  }
  WEFT_RETURN_IF_ERROR(CheckFault());
  absl::StatusOr<bool> holds = ReadCondition(branch);
  if (holds.ok()) return holds;
  return Failed(branch.name, holds.status());
}

absl::StatusOr<bool> PlanExecutor::ReadCondition(const Plan::Branch& branch) const {
  using Test = Plan::Branch::Test;
  if (branch.test == Test::kIterationsLeft)
    return !resources_.values[branch.conditions[0]]->elements.empty();
  for (int variable : branch.conditions) {
    const Tensor& condition = *resources_.tensors[variable];
    const std::string& name = NameOf(variable);
    if (!condition.allocated()) {
      return absl::FailedPreconditionError(
          absl::StrCat("variable ", name, " is read before it is written"));
    }
    if (branch.test == Test::kTrue) return ReadBool(branch.slot, name, condition);
    if (condition.size() == 0) return false;
  }
  return true;
}

absl::Status PlanExecutor::Failed(absl::string_view op, const absl::Status& status) const {
  absl::Status named = Annotate(op, status);
  // An error of the host, whose results the device has used, comes first.
  if (host_thread_ >= 0) {
    const absl::Status host = streams_[host_thread_]->Synchronize();
    if (!host.ok()) named = host;
  }
  if (options_.on_error && !graph_->is_recording()) options_.on_error(named);
  return named;
}

absl::Status PlanExecutor::RunOps(int begin, int end) {
  for (int i = begin; i < end; ++i) {
    StepCall& call = step_->calls()[i];
    if (!options_.trace || streams_[call.stream]->MarksTimes()) {
      WEFT_RETURN_IF_ERROR(RunOp(&call, nullptr));
      continue;
    }
    OpSpan span = SpanOf(call);
    span.bytes = BytesOfInputs(call);  // an op in place may resize them
    span.begin = std::chrono::steady_clock::now();
    const absl::Status status = RunOp(&call, &span.times);
    span.end = std::chrono::steady_clock::now();
    spans_[call.stream].push_back(std::move(span));
    WEFT_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status PlanExecutor::RunOp(StepCall* call, OpTimes* times) {
  const OpCall* failed = nullptr;
  const absl::Status status = ops_->Run(call, &failed, times);
  if (status.ok()) return status;
  const std::string& name = failed->op->name;
  // The step ends with the error. Until then, other ranks do not wait in vain: the device runs what
  // is enqueued. The host's thread must not report it: to abort communicators, the device must be
  // idle, which may wait for this thread.
  if (call->stream == host_thread_) return Annotate(name, status);
  if (call->stream != 0 || loop_.branch < 0) return Failed(name, status);
  return Failed(absl::StrCat(name, ", iteration ", loop_.iterations, " of ",
                             step_->branches()[loop_.branch].name),
                status);
}

void PlanExecutor::LaunchTracedWait(int stream, int event) {
  const Record record = records_[event];
  std::vector<WaitSpan>* waits = &waits_[stream];
  streams_[stream]->Launch([waits, record] {
    waits->push_back({record.stream, record.num_ops, std::chrono::steady_clock::now(), {}});
    return absl::OkStatus();
  });
  streams_[stream]->Wait(events_[event].get());
  streams_[stream]->Launch([waits] {
    waits->back().end = std::chrono::steady_clock::now();
    return absl::OkStatus();
  });
}

}  // namespace weft
