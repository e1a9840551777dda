#include "executor/run/server_rank.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/plan/startup_parts.h"
#include "executor/run/merged_pushes.h"
#include "executor/run/server_values.h"
#include "executor/servers/server_wait.h"
#include "executor/step/catch_exceptions.h"
#include "ops/schema/server_ops.h"

namespace weft {
namespace {

// Copies rows of a tensor. Both are on the host.
absl::Status CopyRows(const Tensor& whole, RowRange rows, Tensor* part) {
  if (rows.end > whole.dim(0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected at least ", rows.end, " rows, found ", DimsToString(whole.dims())));
  }
  Dims dims = whole.dims();
  const size_t row_bytes = whole.bytes() / std::max<int64_t>(dims[0], 1);
  dims[0] = rows.size();
  part->Resize(whole.dtype(), dims);
  std::memcpy(part->raw(), static_cast<const char*>(whole.raw()) + rows.begin * row_bytes,
              part->bytes());
  return absl::OkStatus();
}

}  // namespace

ServerRank::ServerRank(RunJob* job, int index)
    : job_(*job),
      index_(index),
      rank_(job->servers.RankOf(index)),
      step_(job->options.begin_step),
      random_(RandomState::Seeded(job->options.seed, rank_)) {}

void ServerRank::RunAll() {
  const absl::Status status = CatchExceptions([this] { return RunThread(); });
  if (status.ok()) return;
  job_.failures->Report(
      step_, rank_,
      Annotate(absl::StrCat("step ", step_, ", rank ", rank_, " (server ", index_, ")"), status));
}

absl::Status ServerRank::RunThread() {
  WEFT_RETURN_IF_ERROR(Prepare());
  WEFT_RETURN_IF_ERROR(job_.inputs.resume != nullptr ? SetFromCheckpoint() : SetStartValues());
  PlanExecutorOptions options;
  options.plan = &*plan_;
  options.scope = &scope_;
  options.device = device_.get();
  options.rank = rank_;
  options.random = &random_;
  options.threads = job_.options.threads;
  options.check_nan = job_.options.check_nan;
  options.timeout_s = job_.options.timeout_s;
  options.is_aborted = [this] { return job_.failures->any(); };
  options.servers = this;
  options.next_ops = [this] { return NextSection(); };
  WEFT_ASSIGN_OR_RETURN(executor_, PlanExecutor::Create(options));
  for (auto& [key, state] : keys_) {
    const std::string& param = job_.servers.keys.at(key).param;
    state.param = &scope_.FindOrCreate(param)->tensor;
    if (state.param->allocated()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("parameter ", param,
                     ": nothing has written it: pass a startup program or "
                     "parameters"));
  }
  return RunSteps();
}

absl::Status ServerRank::Prepare() {
  const ServerGroup& group = job_.servers;
  WEFT_ASSIGN_OR_RETURN(device_, job_.options.new_device(rank_, HostMemory()));
  WEFT_ASSIGN_OR_RETURN(part_, PartOfServer(*job_.inputs.server, index_, group.num_servers));
  WEFT_ASSIGN_OR_RETURN(plan_, Plan::Build(part_->program, job_.options));
  WEFT_ASSIGN_OR_RETURN(state_, StateOf(*plan_, {}));
  for (const auto& [key, served] : group.keys) {
    const bool is_here = served.by_rows ? part_->rows.count(served.param) > 0
                                        : ServerOfKey(key, group.num_servers) == index_;
    if (!is_here) continue;
    KeyState& state = keys_[key];
    state.num_updates = step_;
    state.pushes.resize(group.num_workers);
    state.next_push.resize(group.num_workers, step_);
    state.applied.resize(group.num_workers, step_);
  }
  is_async_ = group.keys.at(keys_.begin()->first).is_async;
  sections_.emplace(FindKeySections(*plan_));
  return ExpectMessages();
}

absl::Status ServerRank::ExpectMessages() {
  for (const Plan::PlanOp& op : plan_->ops) {
    if (!op.Does(ServerOp::kReceive)) continue;
    const OpAttrs& attrs = op.kernel_spec.attrs;
    const int64_t key = attrs.Int(kServerKeyAttr);
    const auto found = keys_.find(key);
    if (found == keys_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(op.name, ": expected a key that this server holds, found ", key));
    }
    ExpectedMessages& expected = found->second.expected;
    expected.num_workers = job_.servers.num_workers;
    const std::vector<int64_t> shape = attrs.Ints("shape");
    expected.grad = {
        *DTypeFromProto(static_cast<int>(attrs.Int("dtype"))), Dims(shape.begin(), shape.end()),
        attrs.Bool("is_sparse") ? TensorType::Kind::kSelectedRows : TensorType::Kind::kDense};
    expected.num_rows = shape.empty() ? 0 : shape[0];
    expected.others.clear();
    for (absl::string_view slot : kScalarSlots) {
      const auto outputs = op.kernel_spec.outputs.find(slot);
      if (outputs == op.kernel_spec.outputs.end()) continue;
      for (int i = 0; i < outputs->second.count; ++i) {
        const int variable = op.outputs[outputs->second.first + i];
        if (variable == Plan::kNoVariable) {
          return absl::InvalidArgumentError(absl::StrCat(op.name, " output ", slot, "[", i,
                                                         "]: expected a variable, found none"));
        }
        expected.others.push_back(plan_->variables[variable].declared);
      }
    }
  }
  return absl::OkStatus();
}

// Runs the whole startup program, so that its draws are those of other ranks, and keeps the part of
// this server.
absl::Status ServerRank::SetStartValues() {
  std::set<std::string> own;
  for (const StateVariable& variable : state_) own.insert(variable.name);
  if (job_.inputs.startup != nullptr) {
    WEFT_ASSIGN_OR_RETURN(const Program startup, WithoutCommunication(*job_.inputs.startup));
    WEFT_ASSIGN_OR_RETURN(const std::vector<StartupPart> parts,
                          SplitStartup(startup, job_.options.startup_part_bytes));
    Scope all;
    for (const StartupPart& part : parts) {
      WEFT_RETURN_IF_ERROR(Annotate("startup program", RunStartupPart(part.program, &all)));
      for (const std::string& name : part.done) {
        Value* const value = all.Find(name);
        if (value == nullptr) continue;
        if (own.count(name) > 0) WEFT_RETURN_IF_ERROR(KeepPart(name, value->tensor));
        *value = Value();
      }
    }
  }
  for (const std::string& name : own) {
    const Tensor* const param = job_.FindParam(name);
    if (param != nullptr) WEFT_RETURN_IF_ERROR(KeepPart(name, *param));
  }
  return absl::OkStatus();
}

absl::Status ServerRank::RunStartupPart(const Program& program, Scope* scope) {
  PlanOptions plan_options = job_.options;
  plan_options.nranks = 1;
  WEFT_ASSIGN_OR_RETURN(const Plan plan, Plan::Build(program, plan_options));
  PlanExecutorOptions options;
  options.plan = &plan;
  options.scope = scope;
  options.device = device_.get();
  options.rank = rank_;
  options.random = &random_;
  options.threads = job_.options.threads;
  options.timeout_s = job_.options.timeout_s;
  WEFT_ASSIGN_OR_RETURN(const auto executor, PlanExecutor::Create(options));
  return executor->RunStep();
}

absl::Status ServerRank::KeepPart(const std::string& name, const Tensor& whole) {
  if (!whole.allocated()) return absl::OkStatus();
  Tensor* const to = &scope_.FindOrCreate(name)->tensor;
  *to = Tensor(device_->memory());
  const auto rows = part_->rows.find(name);
  if (rows == part_->rows.end()) return to->CopyFrom(whole);
  return Annotate(absl::StrCat("variable ", name), CopyRows(whole, rows->second, to));
}

absl::Status ServerRank::SetFromCheckpoint() {
  for (const StateVariable& variable : state_) {
    const Tensor* const value = FindValue(*job_.inputs.resume, rank_, variable.name);
    const absl::optional<TensorType>& declared = plan_->variables[variable.variable].declared;
    if (value == nullptr || !declared.has_value() || value->dtype() != declared->dtype ||
        value->dims() != declared->dims) {
      return absl::InvalidArgumentError(absl::StrCat(
          "checkpoint: variable ", variable.name, " of rank ", rank_, " (server ", index_,
          "): expected ", declared.has_value() ? ToString(*declared) : "a tensor", ", found ",
          value == nullptr ? "none" : ToString(TensorType{value->dtype(), value->dims()})));
    }
    Tensor* const to = &scope_.FindOrCreate(variable.name)->tensor;
    *to = Tensor(device_->memory());
    WEFT_RETURN_IF_ERROR(to->CopyFrom(*value));
  }
  return absl::OkStatus();
}

absl::Status ServerRank::RunSteps() {
  const int64_t begin = step_, every = job_.options.checkpoint_every;
  for (;; ++step_) {
    const bool is_due = every > 0 && step_ > begin && step_ % every == 0;
    if (is_due) WEFT_RETURN_IF_ERROR(GiveState());
    WEFT_ASSIGN_OR_RETURN(const bool begins, WaitForStep());
    if (!begins) return is_due ? absl::OkStatus() : GiveState();
    job_.steps->AskToStop();
    sections_->BeginStep(is_async_ ? job_.servers.num_workers : 1);
    WEFT_RETURN_IF_ERROR(executor_->RunStep());
  }
}

absl::Status ServerRank::GiveState() {
  if (!job_.inputs.on_checkpoint) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(RankState state, ReadState(state_, executor_->tensors()));
  state.step = step_;
  return job_.states->Pass(rank_ - job_.world.first, std::move(state));
}

bool ServerRank::HasEnded() const {
  return static_cast<int>(ended_.size()) == job_.servers.num_workers;
}

absl::StatusOr<bool> ServerRank::WaitForStep() {
  // Workers compute, for as long as they like.
  while (num_pushes_ == 0 && !HasEnded()) {
    WEFT_ASSIGN_OR_RETURN(absl::optional<ServerMessage> message,
                          job_.servers.post->mailbox(rank_)->Take(absl::nullopt));
    WEFT_RETURN_IF_ERROR(Handle(*std::move(message)));
  }
  return num_pushes_ > 0;
}

absl::StatusOr<absl::optional<OpRange>> ServerRank::NextSection() {
  if (running_ >= 0) sections_->EndRun(running_);
  running_ = -1;
  if (sections_->IsDone()) return absl::optional<OpRange>();
  WEFT_RETURN_IF_ERROR(WaitForSection());
  running_ = sections_->Next();
  return absl::optional<OpRange>(sections_->section(running_).ops);
}

absl::Status ServerRank::WaitForSection() {
  // Asynchronous workers may be many steps apart.
  if (is_async_) WEFT_RETURN_IF_ERROR(WaitForStep().status());
  return WaitForMessages(
      job_.servers, job_.servers.post->mailbox(rank_), [this] { return sections_->HasNext(); },
      [this](ServerMessage message) { return Handle(std::move(message)); },
      [this] { return WaitText(); });
}

std::string ServerRank::WaitText() const {
  const absl::optional<int64_t> key = sections_->FirstLateKey();
  if (!key.has_value()) return absl::StrCat("rank ", rank_, " (server ", index_, ") waits");
  std::vector<int> late;
  const KeyState& state = keys_.at(*key);
  for (size_t worker = 0; worker < state.pushes.size(); ++worker) {
    if (state.pushes[worker].empty()) late.push_back(static_cast<int>(worker));
  }
  return absl::StrCat("rank ", rank_, " (server ", index_, ") waits for the gradient of ",
                      job_.servers.keys.at(*key).param, " from ",
                      late.size() == 1 ? "rank " : "ranks ", absl::StrJoin(late, ", "));
}

absl::Status ServerRank::Run(const Plan::PlanOp& op, absl::Span<const Tensor* const> inputs,
                             absl::Span<Tensor* const> outputs) {
  if (op.Does(ServerOp::kReceive)) return Receive(op, outputs);
  if (op.Does(ServerOp::kServe)) return Serve(op.kernel_spec.attrs.Int(kServerKeyAttr));
  return absl::InvalidArgumentError("expected an op of servers, found one of workers");
}

absl::Status ServerRank::Handle(ServerMessage message) {
  WEFT_RETURN_IF_ERROR(CheckMessage(message));
  if (message.kind == ServerMessage::Kind::kEnd) {
    ended_[message.from] = message.step;
    return absl::OkStatus();
  }
  KeyState& state = keys_.at(message.key);
  if (message.kind == ServerMessage::Kind::kPush) {
    const int64_t key = message.key;
    std::deque<ServerMessage>& pushes = state.pushes[message.from];
    if (pushes.empty()) ++state.num_pushed;
    ++num_pushes_;
    push_bytes_.Add(BytesOf(message));
    state.order.push_back(message.from);
    ++state.next_push[message.from];
    pushes.push_back(std::move(message));
    sections_->SetComplete(key, IsComplete(state));
    return absl::OkStatus();
  }
  if (message.kind == ServerMessage::Kind::kPrefetch)
    return AnswerPrefetch(&state, std::move(message));
  if (IsAnswered(state, message)) return Answer(state, message);
  state.waiting.push_back(std::move(message));
  return absl::OkStatus();
}

absl::Status ServerRank::CheckMessage(const ServerMessage& message) const {
  const bool is_of_worker = message.from >= 0 && message.from < job_.servers.num_workers;
  if (message.kind == ServerMessage::Kind::kEnd && is_of_worker) return absl::OkStatus();
  const auto found = keys_.find(message.key);
  if (found == keys_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("message of key ", message.key, " from rank ", message.from, ", step ",
                     message.step, ": expected a key that this server holds", kServerProgramsHint));
  }
  const KeyState& state = found->second;
  return weft::CheckMessage(message, is_of_worker ? state.next_push[message.from] : 0,
                            job_.servers.keys.at(message.key), state.expected);
}

bool ServerRank::IsComplete(const KeyState& state) const {
  return state.num_pushed >= (is_async_ ? 1 : job_.servers.num_workers);
}

bool ServerRank::IsAnswered(const KeyState& state, const ServerMessage& pull) const {
  const ServedKey& served = job_.servers.keys.at(pull.key);
  if (!served.is_async) return state.num_updates >= pull.step;
  return absl::c_all_of(state.applied,
                        [&](int64_t applied) { return applied >= pull.step - served.staleness; });
}

absl::Status ServerRank::Answer(const KeyState& state, const ServerMessage& pull) {
  ServerMessage reply;
  reply.kind = ServerMessage::Kind::kReply;
  reply.from = rank_;
  reply.key = pull.key;
  reply.step = pull.step;
  reply.request = pull.request;
  const Tensor& param = *state.param;
  if (pull.tensors.empty()) {
    reply.tensors.push_back(param.Clone());
    return job_.servers.post->Send(pull.from, std::move(reply));
  }
  reply.tensors.push_back(RowsOf(param, pull.tensors[0]));
  return job_.servers.post->Send(pull.from, std::move(reply));
}

absl::Status ServerRank::AnswerPrefetch(KeyState* state, ServerMessage prefetch) {
  WEFT_RETURN_IF_ERROR(Answer(*state, prefetch));
  Tensor sent = RowsOf(*state->param, prefetch.tensors[0]);
  const bool is_final = IsFinal(*state, prefetch);
  prefetched_bytes_.Add(static_cast<int64_t>(sent.bytes()));
  state->prefetched.push_back({std::move(prefetch), std::move(sent)});
  return is_final ? SendChanges(state) : absl::OkStatus();
}

bool ServerRank::IsFinal(const KeyState& state, const ServerMessage& prefetch) const {
  const bool is_async = job_.servers.keys.at(prefetch.key).is_async;
  return IsAnswered(state, prefetch) &&
         (!is_async || state.applied[prefetch.from] >= prefetch.step);
}

absl::Status ServerRank::SendChanges(KeyState* state) {
  std::vector<PrefetchedRows> prefetched;
  prefetched.swap(state->prefetched);
  for (PrefetchedRows& rows : prefetched) {
    if (!IsFinal(*state, rows.prefetch)) {
      state->prefetched.push_back(std::move(rows));
      continue;
    }
    ServerMessage changes;
    changes.kind = ServerMessage::Kind::kChanges;
    changes.from = rank_;
    changes.key = rows.prefetch.key;
    changes.step = rows.prefetch.step;
    changes.request = rows.prefetch.request;
    changes.tensors = ChangesOf(*state->param, rows);
    prefetched_bytes_.Add(-static_cast<int64_t>(rows.sent.bytes()));
    WEFT_RETURN_IF_ERROR(job_.servers.post->Send(rows.prefetch.from, std::move(changes)));
  }
  return absl::OkStatus();
}

ServerMessage ServerRank::TakePush(int64_t key, int worker) {
  KeyState& state = keys_.at(key);
  state.last_worker = worker;
  ServerMessage push = std::move(state.pushes[worker].front());
  state.pushes[worker].pop_front();
  if (state.pushes[worker].empty()) --state.num_pushed;
  --num_pushes_;
  state.order.erase(absl::c_find(state.order, worker));
  return push;
}

absl::Status ServerRank::Receive(const Plan::PlanOp& op, absl::Span<Tensor* const> outputs) {
  const int64_t key = op.kernel_spec.attrs.Int(kServerKeyAttr);
  KeyState& state = keys_.at(key);
  if (!IsComplete(state)) {  // else the section would not run
    return absl::InvalidArgumentError(
        absl::StrCat("expected one op that receives key ", key, ", found another"));
  }
  std::vector<ServerMessage> pushes;
  if (is_async_) {
    pushes.push_back(TakePush(key, state.order.front()));
  } else {
    for (int worker = 0; worker < job_.servers.num_workers; ++worker) {
      pushes.push_back(TakePush(key, worker));
    }
  }
  sections_->SetComplete(key, IsComplete(state));
  WEFT_RETURN_IF_ERROR(MergePushes(op, pushes, &merger_, outputs[op.kernel_spec.Output("Grad")]));
  for (const ServerMessage& push : pushes) push_bytes_.Add(-BytesOf(push));
  // The scalars are equal on all workers, or those of the only one.
  size_t next = pushes[0].has_no_rows ? 0 : 1;
  for (absl::string_view slot : kScalarSlots) {
    const auto found = op.kernel_spec.outputs.find(slot);
    if (found == op.kernel_spec.outputs.end()) continue;
    const KernelSpec::Slot& of = found->second;
    for (int i = 0; i < of.count; ++i, ++next) {
      WEFT_RETURN_IF_ERROR(outputs[of.first + i]->CopyFrom(pushes[0].tensors[next]));
    }
  }
  return absl::OkStatus();
}

absl::Status ServerRank::Serve(int64_t key) {
  KeyState& state = keys_.at(key);
  ++state.num_updates;
  if (job_.servers.keys.at(key).is_async) ++state.applied[state.last_worker];
  std::deque<ServerMessage> waiting;
  waiting.swap(state.waiting);
  for (ServerMessage& pull : waiting) {
    if (IsAnswered(state, pull)) {
      WEFT_RETURN_IF_ERROR(Answer(state, pull));
    } else {
      state.waiting.push_back(std::move(pull));
    }
  }
  return SendChanges(&state);
}

absl::StatusOr<std::map<std::string, Tensor>> ServerRank::Held() {
  std::map<std::string, Tensor> held;
  for (const StateVariable& variable : state_) {
    const Value* const value = scope_.Find(variable.name);
    if (value == nullptr || !value->tensor.allocated()) continue;
    const bool is_cut = part_->rows.count(variable.name) > 0;
    const std::string name = is_cut ? NameOfPart(index_, variable.name) : variable.name;
    WEFT_ASSIGN_OR_RETURN(held[name], value->tensor.ToHost());
  }
  return held;
}

ServerMemory ServerRank::memory() {
  ServerMemory memory;
  std::set<const Tensor*> params;
  for (const auto& [key, state] : keys_) params.insert(state.param);
  for (const StateVariable& variable : state_) {
    const Value* const value = scope_.Find(variable.name);
    if (value == nullptr || !value->tensor.allocated()) continue;
    const bool is_param = params.count(&value->tensor) > 0;
    (is_param ? memory.parameters : memory.state) += static_cast<int64_t>(value->tensor.bytes());
  }
  memory.pushes = push_bytes_.most;
  memory.prefetched = prefetched_bytes_.most;
  return memory;
}

}  // namespace weft
