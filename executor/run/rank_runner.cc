#include "executor/run/rank_runner.h"

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/communicators/self_test.h"
#include "executor/plan/startup_buffers.h"
#include "executor/run/kept_states.h"
#include "executor/run/run_control.h"
#include "executor/step/catch_exceptions.h"
#include "executor/step/finite.h"
#include "executor/streams/host_stream.h"
#include "executor/streams/thread_stream.h"
#include "ops/kernel_util.h"
#include "ops/schema/device_ops.h"

namespace weft {
namespace {

std::string StepAndRank(int64_t step, int rank) {
  const std::string when = step == RankRunner::kStartup ? "startup" : absl::StrCat("step ", step);
  return absl::StrCat(when, ", rank ", rank);
}

absl::Status WithStepAndRank(int64_t step, int rank, const absl::Status& status) {
  return Annotate(StepAndRank(step, rank), status);
}

// The generators of a step of the main program; they do not depend on earlier draws. All differ by
// rank: ranks draw noise for different samples.
RandomState DrawsOfStep(uint64_t seed, int rank, int64_t step) {
  // seed_seq uses the low 32 bits of each number. The lengths differ from each other and from those
  // of RandomState::Seeded, so that no two generators are the same.
  const auto low = static_cast<uint64_t>(step), high = low >> 32,
             number = static_cast<uint64_t>(rank) + 1;
  std::seed_seq noise{seed, low, high, number};
  std::seed_seq one_device{seed, low, high};
  std::seed_seq other_rank{seed, low, high, number, number};
  std::seed_seq& initializers = rank == 0 ? one_device : other_rank;
  return RandomState{std::mt19937_64(initializers), std::mt19937_64(noise),
                     DropoutState::OfStep(seed, rank, step)};
}

}  // namespace

void RankRunner::Run() {
  bool has_returned = false;
  absl::Status status = CatchExceptions([&] {
    absl::Status returned = RunAll();
    has_returned = true;
    return returned;
  });
  // Feeds, parameters and results are allocated on this thread.
  if (!has_returned) status = WithStepAndRank(step_, rank_, status);
  if (!status.ok()) job_.failures->Report(step_, rank_, status);
}

WorkerPort::NextFeed RankRunner::NextFeed() {
  // With two devices, what is fed is on the host, and an op may read its copy.
  std::map<int, int> copied_from;
  for (const Plan::PlanOp& op : job_.main_plan->ops) {
    if (!CopiesFrom(op.type).has_value()) continue;
    const auto from = copied_from.find(op.inputs[0]);
    copied_from[op.outputs[0]] = from == copied_from.end() ? op.inputs[0] : from->second;
  }
  return [this, copied_from = std::move(copied_from)](int64_t step, int variable) {
    const auto from = copied_from.find(variable);
    return job_.feeder->Peek(step, rank_, from == copied_from.end() ? variable : from->second);
  };
}

absl::Status RankRunner::RunAll() {
  WEFT_RETURN_IF_ERROR(MakeDevices());
  WEFT_RETURN_IF_ERROR(TestCollectives());
  if (job_.inputs.resume != nullptr) return Resume();
  WEFT_RETURN_IF_ERROR(RunStartup());
  if (job_.inputs.params != nullptr) {
    WEFT_RETURN_IF_ERROR(SetValues(*job_.inputs.params));
    WEFT_RETURN_IF_ERROR(SetValues(job_.masters));
    WEFT_RETURN_IF_ERROR(SetShares(job_.shared_params));
  }
  WEFT_RETURN_IF_ERROR(CastParameters());
  WEFT_RETURN_IF_ERROR(CompareStartValues());
  WEFT_ASSIGN_OR_RETURN(const auto executor, NewExecutor(*job_.main_plan));
  return RunSteps(executor.get());
}

absl::Status RankRunner::SetShares(const std::map<std::string, Tensor>& whole) {
  if (whole.empty()) return absl::OkStatus();
  for (const auto& [variable, tensors] : job_.shares.shares()) {
    Tensor* const value = &scope_.FindOrCreate(variable)->tensor;
    Tensor share;
    if (value->allocated()) {
      WEFT_ASSIGN_OR_RETURN(const Tensor on_host, value->ToHost());
      WEFT_RETURN_IF_ERROR(share.CopyFrom(on_host));
    } else {
      // Without a startup program, `whole` has all tensors of it (PrepareMain).
      const int index = job_.main_plan->FindVariable(variable);
      if (index == Plan::kNoVariable) continue;  // no op uses it
      const TensorType& declared = *job_.main_plan->variables[index].declared;
      share.Resize(declared.dtype, declared.dims);
      if (share.bytes() > 0) std::memset(share.raw(), 0, share.bytes());
    }
    WEFT_RETURN_IF_ERROR(job_.shares.Overwrite(variable, rank_, job_.world.size, whole, &share));
    WEFT_RETURN_IF_ERROR(value->CopyFrom(share));
  }
  std::map<std::string, Tensor> kept;
  for (const auto& [variable, names] : job_.shares.common()) {
    const Value* const value = scope_.Find(variable);
    if (value == nullptr || !value->tensor.allocated()) continue;
    WEFT_ASSIGN_OR_RETURN(kept[variable], value->tensor.ToHost());
  }
  WEFT_ASSIGN_OR_RETURN(const auto common, job_.shares.CommonOf(whole, kept));
  for (const auto& [name, tensor] : common) {
    WEFT_RETURN_IF_ERROR(scope_.FindOrCreate(name)->tensor.CopyFrom(tensor));
  }
  return absl::OkStatus();
}

absl::Status RankRunner::SetValues(const std::map<std::string, Tensor>& values) {
  std::set<std::string> buffers, parts;
  for (const StartupBuffer& buffer : job_.buffers) {
    buffers.insert(buffer.name);
    for (const StartupBuffer::Part& part : buffer.parts) parts.insert(part.name);
  }
  for (const bool of_buffers : {true, false}) {
    for (const auto& [name, tensor] : values) {
      if (job_.IsOfServers(name) || job_.shares.Replaces(name)) continue;
      if ((buffers.count(name) > 0) != of_buffers) continue;
      Tensor* const value = &scope_.FindOrCreate(name)->tensor;
      const bool stays = (of_buffers || parts.count(name) > 0) && value->allocated() &&
                         value->dtype() == tensor.dtype() && value->dims() == tensor.dims();
      if (!stays) *value = Tensor(device_->memory());
      WEFT_RETURN_IF_ERROR(value->CopyFrom(tensor));
    }
  }
  return absl::OkStatus();
}

absl::Status RankRunner::CastParameters() {
  std::map<std::string, Tensor> cast;
  for (const Plan::Variable& variable : job_.main_plan->variables) {
    const bool is_half = variable.declared.has_value() && IsHalf(variable.declared->dtype);
    const Value* const value = variable.persistable ? scope_.Find(variable.name) : nullptr;
    if (!is_half || value == nullptr || !value->tensor.allocated() ||
        value->tensor.dtype() != DType::kFloat32) {
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(const Tensor from, value->tensor.ToHost());
    Tensor& to = cast[variable.name];
    to.Resize(variable.declared->dtype, from.dims());
    WEFT_RETURN_IF_ERROR(ConvertFloats(variable.name, from, variable.name, &to));
  }
  return SetValues(cast);
}

absl::Status RankRunner::MakeDevices() {
  WEFT_ASSIGN_OR_RETURN(device_, job_.options.new_device(rank_, job_.group->host_memory()));
  const bool has_accelerator =
      RunsOnAccelerator(*job_.main_plan) ||
      (job_.startup_plan.has_value() && RunsOnAccelerator(*job_.startup_plan));
  if (!has_accelerator) return absl::OkStatus();
  if (device_->memory()->IsHost()) {
    accelerator_ = NewSimDevice(job_.options.sim, device_->memory());
    return absl::OkStatus();
  }
  const SimDeviceOptions& sim = job_.options.sim;
  if (sim.memory_bytes > 0 || sim.copy_bytes_per_s > 0 || sim.copy_latency_s > 0) {
    return absl::InvalidArgumentError(
        "the size of the accelerator's memory and the speed of copies: expected a simulated "
        "accelerator, found a device");
  }
  if (device_->signals() == nullptr || job_.options.host_kernels == nullptr) {
    return absl::UnimplementedError(
        "a program on two devices (stream_wait): expected a device for whose work the host can "
        "wait, and kernels for the host");
  }
  accelerator_ = WithHostStream(std::move(device_),
                                job_.options.ranks_share_device && job_.options.nranks > 1);
  device_ = NewHostDevice();
  return absl::OkStatus();
}

absl::Status RankRunner::TestCollectives() {
  Device& device = accelerator_ != nullptr ? *accelerator_ : *device_;
  if (!device.memory()->IsHost() || job_.options.num_servers > 0) return absl::OkStatus();
  std::map<RingKey, CollectiveKinds> kinds;
  for (const Plan::PlanOp& op : job_.main_plan->ops) {
    const Plan::RingWork* const work = op.ring_work();
    if (work == nullptr) continue;
    const RingKey& ring = job_.main_plan->rings[work->ring];
    const CollectiveDesc& desc = work->desc;
    if (!ring.Has(rank_) || SizeOf(ring, job_.world.size) == 1) continue;
    kinds[SelfTestRingOf(ring)].emplace(desc.kind,
                                        Reduces(desc.kind) ? desc.reduction : Reduction::kSum);
  }
  for (const auto& [ring, of_ring] : kinds) {
    WEFT_ASSIGN_OR_RETURN(Communicator * end, job_.group->Get(ring, rank_));
    WEFT_RETURN_IF_ERROR(weft::TestCollectives(of_ring, end));
  }
  return absl::OkStatus();
}

bool RankRunner::RunsOnAccelerator(const Plan& plan) const {
  if (plan.on_two_devices) return true;
  const bool is_main = &plan == &*job_.main_plan;
  const bool is_device = accelerator_ != nullptr && !accelerator_->memory()->IsHost();
  return is_device ? is_main || !job_.starts_on_host : is_main && job_.options.sim.memory_bytes > 0;
}

absl::Status RankRunner::Resume() {
  const Checkpoint& checkpoint = *job_.resume();
  for (const StartupBuffer& buffer : job_.buffers) {
    if (!job_.buffers_share_memory) break;
    WEFT_RETURN_IF_ERROR(LayOutStartupBuffer(
        buffer, [&](const std::string& name) { return FindValue(checkpoint, rank_, name); },
        device_->memory(), [this](const std::string& name) { return TensorOf(name); }));
  }
  WEFT_ASSIGN_OR_RETURN(const auto executor, NewExecutor(*job_.main_plan));
  // Parts of buffers count more than the buffer.
  const auto is_buffer = [this](const std::string& name) {
    return absl::c_any_of(job_.buffers,
                          [&name](const StartupBuffer& buffer) { return buffer.name == name; });
  };
  for (const bool of_buffers : {true, false}) {
    for (const StateVariable& variable : job_.state) {
      const Tensor* const value = FindValue(checkpoint, rank_, variable.name);
      if (value == nullptr || is_buffer(variable.name) != of_buffers) continue;
      WEFT_RETURN_IF_ERROR(executor->tensor(variable.variable)->CopyFrom(*value));
    }
  }
  if (checkpoint.nranks == job_.world.size && !checkpoint.random[rank_].empty()) {
    WEFT_ASSIGN_OR_RETURN(random_, ParseRandomText(checkpoint.random[rank_]));
  }
  if (++job_.num_resumed == job_.world.count && job_.inputs.on_resumed) job_.inputs.on_resumed();
  return RunSteps(executor.get());
}

Tensor* RankRunner::TensorOf(const std::string& name) {
  const int v = job_.main_plan->FindVariable(name);
  if (v == Plan::kNoVariable || !job_.main_plan->variables[v].persistable) return nullptr;
  return &scope_.FindOrCreate(name)->tensor;
}

absl::Status RankRunner::CopyBuffers(bool all) {
  for (size_t b = 0; b < job_.buffers.size(); ++b) {
    const StartupBufferUse& use = job_.buffer_uses[b];
    if (use.is_remade || !(all || use.reads_copy)) continue;
    WEFT_RETURN_IF_ERROR(
        CopyStartupBuffer(job_.buffers[b], use.writes_buffer,
                          [this](const std::string& name) { return TensorOf(name); }));
  }
  return absl::OkStatus();
}

absl::Status RankRunner::RunSteps(PlanExecutor* executor) {
  const int64_t begin = job_.options.begin_step, every = job_.options.checkpoint_every;
  for (step_ = begin; !job_.failures->any(); ++step_) {
    WEFT_RETURN_IF_ERROR(KeepState(executor));
    const bool is_due = every > 0 && step_ % every == 0 && (step_ > begin || job_.options.goes_on);
    if (is_due) WEFT_RETURN_IF_ERROR(GiveState(executor));
    WEFT_RETURN_IF_ERROR(FollowOrders(executor));
    if (!job_.steps->Begins(step_)) {
      // Before they are asked for their state.
      if (servers_.has_value()) WEFT_RETURN_IF_ERROR(servers_->End(step_));
      if (!is_due) WEFT_RETURN_IF_ERROR(GiveState(executor));
      break;
    }
    WEFT_RETURN_IF_ERROR(RunStep(executor));
  }
  WEFT_RETURN_IF_ERROR(CopyBuffers(/*all=*/true));
  memory_ = executor->memory();
  graph_use_ = executor->graph_use();
  if (servers_.has_value()) {
    row_traffic_ = servers_->traffic();
    const absl::Span<const ServerTraffic> of_servers = servers_->traffic_of_servers();
    server_traffic_.assign(of_servers.begin(), of_servers.end());
  }
  return absl::OkStatus();
}

absl::Status RankRunner::RunStartup() {
  const auto run = [this](const Plan& plan) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const auto executor, NewExecutor(plan));
    return WithStepAndRank(step_, rank_, executor->RunStep());
  };
  if (!job_.startup_plan.has_value()) return absl::OkStatus();
  if (job_.startup_parts.empty()) return run(*job_.startup_plan);
  for (const RunJob::PartOfStartup& part : job_.startup_parts) {
    WEFT_RETURN_IF_ERROR(run(part.plan));
    for (const std::string& name : part.done) {
      const int own = job_.main_plan->FindVariable(name);
      if (own != Plan::kNoVariable && job_.main_plan->variables[own].persistable) continue;
      if (Value* const value = scope_.Find(name); value != nullptr) *value = Value();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RankState> RankRunner::StateBetweenSteps(PlanExecutor* executor) {
  WEFT_RETURN_IF_ERROR(CopyBuffers(/*all=*/true));
  absl::StatusOr<RankState> state = ReadState(job_.state, executor->tensors());
  if (!state.ok()) return WithStepAndRank(step_, rank_, state.status());
  state->step = step_;
  // Those of later steps follow from the seed.
  if (step_ == 0 && job_.main_may_draw) state->random = RandomText(random_);
  return state;
}

absl::Status RankRunner::KeepState(PlanExecutor* executor) {
  KeptStates* const kept = job_.options.kept;
  if (kept == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const RankState state, StateBetweenSteps(executor));
  return WithStepAndRank(step_, rank_,
                         kept->Keep(rank_, state, [this] { return job_.failures->any(); }));
}

absl::Status RankRunner::GiveState(PlanExecutor* executor) {
  if (!job_.inputs.on_checkpoint) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(RankState state, StateBetweenSteps(executor));
  return job_.states->Pass(rank_ - job_.world.first, std::move(state));
}

absl::Status RankRunner::TakeState(PlanExecutor* executor,
                                   const std::map<std::string, Tensor>& values) {
  const auto is_buffer = [this](const std::string& name) {
    return absl::c_any_of(job_.buffers,
                          [&name](const StartupBuffer& buffer) { return buffer.name == name; });
  };
  for (const bool of_buffers : {true, false}) {
    for (const StateVariable& variable : job_.state) {
      const auto value = values.find(variable.name);
      if (value == values.end() || is_buffer(variable.name) != of_buffers) continue;
      Tensor* const to = executor->tensor(variable.variable);
      const Tensor& from = value->second;
      if (to->allocated() && (to->dtype() != from.dtype() || to->size() != from.size())) {
        return WithStepAndRank(step_, rank_,
                               absl::InvalidArgumentError(absl::StrCat(
                                   "variable ", variable.name, ": expected ",
                                   ToString(TensorType{to->dtype(), to->dims()}), ", found ",
                                   ToString(TensorType{from.dtype(), from.dims()}))));
      }
      WEFT_RETURN_IF_ERROR(to->CopyFrom(from));
    }
  }
  for (const StartupBuffer& buffer : job_.buffers) {
    if (job_.buffers_share_memory) break;
    const bool has_parts =
        absl::c_any_of(buffer.parts, [&](const auto& part) { return values.count(part.name) > 0; });
    if (!has_parts && values.count(buffer.name) == 0) continue;
    WEFT_RETURN_IF_ERROR(
        CopyStartupBuffer(buffer, /*from_buffer=*/!has_parts,
                          [this](const std::string& name) { return TensorOf(name); }));
  }
  std::map<std::string, Tensor> whole;
  for (const std::string& name : job_.shares.whole()) {
    if (const auto value = values.find(name); value != values.end()) whole.insert(*value);
  }
  return SetShares(whole);
}

absl::Status RankRunner::FollowOrders(PlanExecutor* executor) {
  RunControl* const control = job_.options.control;
  if (control == nullptr) return absl::OkStatus();
  for (;;) {
    const RunControl::Order order = control->Next(&num_orders_);
    if (order == RunControl::Order::kStep || order == RunControl::Order::kEnd) {
      return absl::OkStatus();
    }
    if (order == RunControl::Order::kTakeState) {
      WEFT_RETURN_IF_ERROR(TakeState(executor, control->values()));
    }
    WEFT_RETURN_IF_ERROR(GiveState(executor));
  }
}

absl::Status RankRunner::CompareStartValues() {
  if (job_.start_values == nullptr) return absl::OkStatus();
  std::vector<uint64_t> hashes;
  for (const StartValues::Variable& variable : job_.start_values->variables()) {
    const Value* const value = scope_.Find(variable.name);
    hashes.push_back(0);
    if (value == nullptr || !value->tensor.allocated()) continue;
    WEFT_ASSIGN_OR_RETURN(const Tensor tensor, value->tensor.ToHost());
    hashes.back() = StartHash(tensor);
  }
  job_.start_values->Add(rank_, std::move(hashes));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PlanExecutor>> RankRunner::NewExecutor(const Plan& plan) {
  PlanExecutorOptions options;
  options.plan = &plan;
  options.scope = &scope_;
  options.device = RunsOnAccelerator(plan) ? accelerator_.get() : device_.get();
  options.host_memory = device_->memory();
  options.group = job_.group.get();
  options.rank = rank_;
  options.random = &random_;
  place_ = StepAndRank(step_, rank_);
  options.place = &place_;
  if (&plan == &*job_.main_plan) {
    options.accessed = job_.accessed;
    options.graph = job_.options.graph;
  }
  options.threads = job_.options.threads;
  options.check_nan = job_.options.check_nan;
  options.trace = job_.inputs.on_trace != nullptr;
  if (servers_.has_value()) options.servers = &*servers_;
  options.timeout_s = job_.options.timeout_s;
  options.is_aborted = [this] { return job_.failures->any(); };
  options.on_error = [this](const absl::Status& status) {
    job_.failures->Report(step_, rank_, WithStepAndRank(step_, rank_, status));
  };
  return PlanExecutor::Create(options);
}

absl::Status RankRunner::RunStep(PlanExecutor* executor) {
  const auto start = std::chrono::steady_clock::now();
  // Seeding takes 10 us.
  if (job_.main_may_draw) {
    RandomState draws = DrawsOfStep(job_.options.seed, rank_, step_);
    // Step 0 goes on where the startup program stopped, which drew the same on all ranks.
    if (step_ > 0) random_.noise = draws.noise;
    if (step_ > 0) random_.dropout = draws.dropout;
    if (step_ > 0 || rank_ > 0) random_.initializers = draws.initializers;
  }
  place_ = StepAndRank(step_, rank_);
  if (servers_.has_value()) servers_->BeginStep(step_);
  WEFT_RETURN_IF_ERROR(job_.feeder->Feed(step_, rank_, executor->tensors()));
  WEFT_RETURN_IF_ERROR(SetFeedback(executor));
  WEFT_RETURN_IF_ERROR(CopyBuffers(/*all=*/false));
  WEFT_RETURN_IF_ERROR(WithStepAndRank(step_, rank_, executor->RunStep()));
  WEFT_RETURN_IF_ERROR(ReportTrace(*executor));
  StepResult result;
  result.step = step_;
  result.rank = rank_;
  result.samples = job_.feeder->samples(executor->tensors());
  if (job_.fetches_buffers) WEFT_RETURN_IF_ERROR(CopyBuffers(/*all=*/true));
  for (int variable : job_.fetch) {
    const Tensor& tensor = *executor->tensor(variable);
    if (!tensor.allocated()) {
      return WithStepAndRank(
          step_, rank_,
          absl::FailedPreconditionError(absl::StrCat(
              "fetch ", job_.main_plan->variables[variable].name, ": nothing has written it")));
    }
    WEFT_RETURN_IF_ERROR(result.values.emplace_back().CopyFrom(tensor));
  }
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
  result.ms = ms.count();
  result.status = WithStepAndRank(step_, rank_, CheckLosses(executor));
  return job_.Post(std::move(result));
}

absl::Status RankRunner::SetFeedback(PlanExecutor* executor) {
  if (job_.feedback == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const double number, job_.feedback->ValueAt(step_));
  Tensor* const fed = executor->tensor(job_.feedback_variable);
  Tensor value;
  value.Resize(fed->dtype(), fed->dims());
  if (fed->dtype() == DType::kFloat32) {
    *value.data<float>() = static_cast<float>(number);
  } else {
    *value.data<double>() = number;
  }
  return fed->CopyFrom(value);
}

absl::Status RankRunner::ReportTrace(const PlanExecutor& executor) {
  if (!job_.inputs.on_trace) return absl::OkStatus();
  std::lock_guard<std::mutex> lock(job_.trace_mutex);
  StepTrace trace{step_, rank_, &*job_.main_plan, executor.spans(), executor.waits()};
  if (servers_.has_value()) {
    trace.prefetches = servers_->prefetches();
    trace.server_traffic = servers_->traffic_of_servers();
  }
  return job_.inputs.on_trace(trace);
}

absl::Status RankRunner::CheckLosses(PlanExecutor* executor) const {
  if (!job_.options.check_losses) return absl::OkStatus();
  for (int variable : job_.main_plan->losses) {
    WEFT_ASSIGN_OR_RETURN(const Tensor loss, executor->tensor(variable)->ToHost());
    const absl::string_view found = FirstNonFinite(loss);
    if (found.empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("loss ", job_.main_plan->variables[variable].name, " is ", found));
  }
  return absl::OkStatus();
}

}  // namespace weft
