#include "tools/cmd/run_session.h"

#include <unistd.h>

#include <atomic>
#include <set>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/communicators/local_communicator.h"
#include "executor/gpu/local_gpu_communicator.h"
#include "executor/gpu/nccl_communicator.h"
#include "executor/plan/run_checks.h"
#include "executor/run/feed_sources.h"
#include "executor/run/run_state.h"
#include "executor/run/shared_states.h"
#include "ops/analysis/core/group_variables.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/training/data_variables.h"
#include "proto/all_ops.h"
#include "proto/program.h"
#include "tools/schedules/plateau_schedule.h"
#include "tools/schedules/run_schedule.h"

namespace weft {
namespace {

// The process in which the first session began: kernels may keep threads after its end.
std::atomic<pid_t> first_process{0};

// A run has as many steps as are ordered. Far from the largest number, to which steps are added.
constexpr int64_t kOpen = int64_t{1} << 50;

// The data variables that an op reads.
std::vector<std::string> DataOf(const Program& main) {
  std::vector<std::string> names;
  const auto data = FindData(main);
  std::set<Symbol> read;
  for (OpId id : main.block(0).ops()) {
    for (Symbol name : main.op(id).input_args()) read.insert(name);
  }
  for (VarId id : main.block(0).vars()) {
    if (data.contains(id) && read.count(main.var(id).name_symbol()) > 0) {
      names.emplace_back(main.var(id).name());
    }
  }
  return names;
}

// The running statistics of normalizations: each rank has those of its data.
std::vector<std::string> StatisticsOf(const Program& main) {
  std::vector<std::string> names;
  for (const Op op : AllOps(main)) {
    for (const char* slot : {"MeanOut", "VarianceOut"}) {
      for (Symbol name : op.Output(slot)) names.emplace_back(main.name(name));
    }
  }
  return names;
}

std::map<std::string, Tensor> CopyOf(const std::map<std::string, Tensor>& tensors) {
  std::map<std::string, Tensor> copies;
  for (const auto& [name, tensor] : tensors) copies[name] = tensor.Clone();
  return copies;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunSession>> RunSession::Create(RunFlags flags, RunFiles given) {
  auto session = std::unique_ptr<RunSession>(new RunSession(std::move(flags)));
  RunSession* const self = session.get();
  self->flags_.by_steps = true;
  self->flags_.say = [self](const Said& said) { self->Say(said); };
  self->given_ = std::move(given);
  WEFT_RETURN_IF_ERROR(CheckRunDevice(self->flags_));
  if (!self->flags_.resume.empty()) {
    WEFT_ASSIGN_OR_RETURN(self->resume_, ReadCheckpoint(self->flags_.resume));
    WEFT_RETURN_IF_ERROR(
        Annotate(self->flags_.resume, ContinueFrom(*self->resume_, &self->flags_)));
    self->flags_.steps.reset();
    const auto best = self->resume_->settings.find(kBestOfCheckpoint);
    if (best != self->resume_->settings.end()) self->best_ = best->second;
  }
  self->step_ = self->flags_.run.begin_step;
  WEFT_RETURN_IF_ERROR(self->Read(DataOf(*self->given_.main)));
  return session;
}

RunSession::~RunSession() { End().IgnoreError(); }

void RunSession::Free(std::unique_ptr<RunSession> session) {
  const bool is_of_another = session->process_ != 0 && session->process_ != getpid();
  if (is_of_another) static_cast<void>(session.release());
}

absl::Status RunSession::Read(std::vector<std::string> names) {
  RunFiles given = given_;
  names_ = std::move(names);
  given.feeds.variables = names_;
  given.feeds.when = BatchReader::When::kInTime;
  given.feeds.read = [this](int64_t) -> absl::StatusOr<std::vector<Tensor>> { return batch_; };
  WEFT_ASSIGN_OR_RETURN(files_, ReadRunFiles(flags_, /*link=*/nullptr, std::move(given)));
  flags_.reports = false;  // all is said
  return absl::OkStatus();
}

absl::Status RunSession::CheckProcess() const {
  const pid_t here = getpid();
  pid_t first = 0;
  if ((process_ == 0 || process_ == here) &&
      (first_process.compare_exchange_strong(first, here) || first == here)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "this process was forked from process ", process_ != 0 && process_ != here ? process_ : first,
      ", in which a run had started threads, which a fork does not copy: fork before the first "
      "run, "
      "or start the process anew (in Python: multiprocessing's method spawn)"));
}

absl::Status RunSession::Begin() {
  WEFT_RETURN_IF_ERROR(CheckProcess());
  if (process_ != 0) return absl::OkStatus();
  if (end_.has_value()) return Fail();
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a thread: ", error.what()));
  }
  process_ = getpid();
  return absl::OkStatus();
}

absl::Status RunSession::AddCheckpoint(const Checkpoint& checkpoint) {
  Checkpoint copy;
  own_.clear();
  for (const auto& own : checkpoint.own) {
    for (const auto& [name, tensor] : own) own_.insert(name);
  }
  if (!copies_state_) {
    std::lock_guard<std::mutex> lock(mutex_);
    checkpoint_ = std::move(copy);
    changed_.notify_all();
    return absl::OkStatus();
  }
  copy = checkpoint;
  copy.shared = CopyOf(checkpoint.shared);
  for (size_t rank = 0; rank < copy.own.size(); ++rank)
    copy.own[rank] = CopyOf(checkpoint.own[rank]);
  copy.end_step = copy.step;  // nobody knows where the run will end
  std::lock_guard<std::mutex> lock(mutex_);
  checkpoint_ = std::move(copy);
  changed_.notify_all();
  return absl::OkStatus();
}

// The thread of the run.
void RunSession::Run() {
  RunInputs inputs;
  inputs.main = &*files_->main;
  inputs.startup = files_->startup.has_value() ? &*files_->startup : nullptr;
  inputs.params = files_->params.has_value() ? &files_->params->params : nullptr;
  inputs.resume = resume_.has_value() ? &*resume_ : nullptr;
  inputs.feeds = files_->feeds;
  absl::optional<PlateauSchedule> plateau;
  if (files_->plateau.has_value()) plateau = files_->plateau->schedule;
  inputs.on_result = [&](const StepResult& result) -> absl::Status {
    if (plateau.has_value()) WEFT_RETURN_IF_ERROR(plateau->Add(result));
    std::lock_guard<std::mutex> lock(mutex_);
    if (fetch_.empty()) fetch_ = *result.names;
    results_.push_back(result);
    results_.back().names = &fetch_;
    if (static_cast<int>(results_.size()) == nranks()) changed_.notify_all();
    return absl::OkStatus();
  };
  bool is_asked = true;  // not for the state at the end
  inputs.on_checkpoint = [&](Checkpoint checkpoint) -> absl::Status {
    is_asked = !control_.has_ended();
    if (!is_asked) return absl::OkStatus();
    checkpoint.settings = SettingsOf(flags_.schedule, plateau.has_value() ? &*plateau : nullptr);
    checkpoint.settings[kProgramOfCheckpoint] = FingerprintOf(*files_);
    if (!best_.empty()) checkpoint.settings[kBestOfCheckpoint] = best_;
    return AddCheckpoint(checkpoint);
  };
  RunOptions options = flags_.run;
  options.control = &control_;
  options.steps = kOpen - options.begin_step;
  options.returns_persistables = false;
  options.warn = [this](const std::string& message) {
    flags_.say({Severity::kWarning, message, /*names_command=*/true});
  };
  const bool shares_gpu = flags_.backend == "local";
  ChooseDevice(
      flags_, [shares_gpu](int rank) { return shares_gpu ? 0 : rank; }, &options);
  if (flags_.device == "gpu") {
    options.new_group = [shares_gpu](GroupOptions group) {
      return shares_gpu ? NewLocalGpuGroup(std::move(group)) : NewNcclGroup(std::move(group), {});
    };
  }
  if (plateau.has_value()) {
    options.feedback = Feedback{files_->plateau->variable, plateau->every(),
                                [&plateau](int64_t step) { return plateau->RateAt(step); }};
    if (!plateau->metric().empty()) options.fetch = files_->reported;
  }
  const absl::StatusOr<RunResult> result = RunProgram(inputs, options);
  std::lock_guard<std::mutex> lock(mutex_);
  end_ = NameFile(flags_, flags_.backend.empty() ? "local" : flags_.backend, result.status());
  changed_.notify_all();
}

// The error of a run that has ended.
absl::Status RunSession::Fail() {
  if (!end_->ok()) return *end_;
  return absl::FailedPreconditionError("the run has ended");
}

bool RunSession::Reorder(absl::Span<const std::string> names, std::vector<Tensor>* batch) const {
  if (names.size() != names_.size()) return false;
  std::vector<Tensor> ordered;
  for (const std::string& name : names_) {
    const auto found = absl::c_find(names, name);
    if (found == names.end()) return false;
    ordered.push_back((*batch)[found - names.begin()]);
  }
  *batch = std::move(ordered);
  return true;
}

absl::StatusOr<absl::Span<const StepResult>> RunSession::Step(absl::Span<const std::string> names,
                                                              std::vector<Tensor> batch) {
  if (process_ == 0 && names != absl::MakeConstSpan(names_)) {
    WEFT_RETURN_IF_ERROR(Read({names.begin(), names.end()}));
  } else if (names != absl::MakeConstSpan(names_) && !Reorder(names, &batch)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "step ", step_, ": expected a batch of ", absl::StrJoin(names_, ", "),
        ", as in the first step, found ", names.empty() ? "none" : absl::StrJoin(names, ", ")));
  }
  WEFT_RETURN_IF_ERROR(Begin());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (end_.has_value()) return Fail();
    results_.clear();
    batch_ = std::move(batch);
  }
  control_.Give(RunControl::Order::kStep);
  std::unique_lock<std::mutex> lock(mutex_);
  const auto is_done = [this] { return static_cast<int>(results_.size()) == nranks(); };
  changed_.wait(lock, [&] { return is_done() || end_.has_value(); });
  batch_.clear();
  // A loss that is not finite is the result of a step, too.
  for (const StepResult& result : results_) {
    if (result.status.ok()) continue;
    changed_.wait(lock, [this] { return end_.has_value(); });
  }
  if (end_.has_value()) return Fail();
  ++step_;
  return absl::MakeConstSpan(results_);
}

absl::StatusOr<Checkpoint> RunSession::State() {
  WEFT_RETURN_IF_ERROR(Begin());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (end_.has_value()) return Fail();
    checkpoint_.reset();
  }
  control_.Give(RunControl::Order::kGiveState);
  return WaitForState();
}

absl::StatusOr<Checkpoint> RunSession::WaitForState() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return checkpoint_.has_value() || end_.has_value(); });
  if (!checkpoint_.has_value()) return Fail();
  Checkpoint checkpoint = *std::move(checkpoint_);
  checkpoint_.reset();
  return checkpoint;
}

absl::StatusOr<std::map<std::string, Tensor>> RunSession::Persistables() {
  WEFT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, State());
  return PersistablesOf(*files_->main, checkpoint);
}

absl::Status RunSession::CheckValues(const std::map<std::string, Tensor>& values) const {
  const Program& main = *files_->main;
  WEFT_ASSIGN_OR_RETURN(const SharedStates shares, SharedStates::Of(main));
  for (const auto& [name, tensor] : values) {
    const TensorType type = {tensor.dtype(), tensor.dims()};
    WEFT_RETURN_IF_ERROR(shares.Replaces(name) ? shares.CheckParam(main, name, type)
                                               : CheckParam(main, name, type));
  }
  const auto require = [&values](const std::string& other, const std::string& name) {
    if (values.count(other) > 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("variable ", name, ": expected ", other, " with it, found none"));
  };
  for (const ParamUpdate& update : FindUpdates(main)) {
    const std::string param(main.name(update.param));
    if (!update.master.valid() || values.count(param) == 0) continue;
    WEFT_RETURN_IF_ERROR(require(std::string(main.name(update.master)), param));
  }
  if (values.empty() || !files_->setting.averaging.has_value() ||
      !files_->setting.averaging->outer.HasState()) {
    return absl::OkStatus();
  }
  for (VarId id : main.block(0).vars()) {
    if (!main.var(id).persistable()) continue;
    WEFT_RETURN_IF_ERROR(require(std::string(main.var(id).name()), values.begin()->first));
  }
  return absl::OkStatus();
}

absl::Status RunSession::CheckAreShared(const std::map<std::string, Tensor>& values) {
  if (nranks() == 1) return absl::OkStatus();
  copies_state_ = false;
  control_.Give(RunControl::Order::kGiveState);
  const absl::Status status = WaitForState().status();
  copies_state_ = true;
  WEFT_RETURN_IF_ERROR(status);
  for (const std::string& name : StatisticsOf(main())) own_.erase(name);
  for (const auto& [name, group] : FindGroupVariables(main())) own_.erase(name);
  for (const auto& [name, tensor] : values) {
    if (own_.count(name) == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("variable ", name,
                     ": ranks have values of their own, which one value for all would replace; "
                     "leave it out, set it before they differ, or go on from a checkpoint"));
  }
  return absl::OkStatus();
}

absl::Status RunSession::SetPersistables(const std::map<std::string, Tensor>& values) {
  WEFT_RETURN_IF_ERROR(CheckValues(values));
  WEFT_RETURN_IF_ERROR(Begin());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (end_.has_value()) return Fail();
    checkpoint_.reset();
  }
  WEFT_RETURN_IF_ERROR(CheckAreShared(values));
  copies_state_ = false;
  control_.GiveValues(&values);
  const absl::Status status = WaitForState().status();
  copies_state_ = true;
  return status;
}

absl::Status RunSession::WriteCheckpoint(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, State());
  return weft::WriteCheckpoint(path, checkpoint);
}

absl::Status RunSession::Save(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(auto tensors, Persistables());
  return SaveState(path, *files_, std::move(tensors));
}

absl::Status RunSession::End() {
  if (process_ == 0) {
    end_ = absl::OkStatus();
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(CheckProcess());
  if (thread_.joinable()) {
    control_.Give(RunControl::Order::kEnd);
    thread_.join();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  return *end_;
}

void RunSession::Say(Said said) {
  std::lock_guard<std::mutex> lock(mutex_);
  said_.push_back(std::move(said));
}

std::vector<Said> RunSession::TakeSaid() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Said> said;
  said.swap(said_);
  return said;
}

}  // namespace weft
