#include "tools/cmd/run_session.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "base/wait_briefly.h"
#include "executor/plan/run_checks.h"
#include "executor/run/feed_sources.h"
#include "executor/run/run_messages.h"
#include "executor/run/run_state.h"
#include "executor/run/shared_states.h"
#include "executor/run/start_values.h"
#include "ops/analysis/core/group_variables.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/training/data_variables.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/program.h"
#include "tools/job/job_environment.h"
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

// A line for each variable, in the order of their names.
std::string DescribeBatch(absl::Span<const std::string> names, absl::Span<const Tensor> batch) {
  std::map<std::string, std::string> lines;
  for (size_t i = 0; i < names.size(); ++i) {
    const Tensor& tensor = batch[i];
    lines[names[i]] = tensor.allocated()
                          ? absl::StrCat(ToString(TensorType{tensor.dtype(), tensor.dims()}),
                                         " with hash ", absl::Hex(StartHash(tensor)))
                          : "no value";
  }
  return absl::StrJoin(lines, "\n", absl::PairFormatter(": "));
}

// InvalidArgument for the first variable of which the batches differ.
absl::Status CompareBatches(int64_t step, absl::string_view expected, absl::string_view found) {
  const std::vector<absl::string_view> theirs = absl::StrSplit(expected, '\n');
  const std::vector<absl::string_view> own = absl::StrSplit(found, '\n');
  for (size_t i = 0; i < own.size(); ++i) {
    const absl::string_view other = i < theirs.size() ? theirs[i] : "no such variable";
    if (own[i] == other) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step, ": expected the batch of all ranks, as process 0 has it (",
                     other, "), found ", own[i]));
  }
  return absl::OkStatus();
}

std::map<std::string, Tensor> CopyOf(const std::map<std::string, Tensor>& tensors) {
  std::map<std::string, Tensor> copies;
  for (const auto& [name, tensor] : tensors) copies[name] = tensor.Clone();
  return copies;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunSession>> RunSession::Create(RunFlags flags, RunFiles given,
                                                               bool in_job) {
  auto session = std::unique_ptr<RunSession>(new RunSession(std::move(flags)));
  RunSession* const self = session.get();
  self->flags_.by_steps = true;
  self->flags_.say = [self](const Said& said) { self->Say(said); };
  self->given_ = std::move(given);
  WEFT_RETURN_IF_ERROR(CheckRunDevice(self->flags_));
  WEFT_RETURN_IF_ERROR(self->Join(in_job));
  const absl::Status status = self->Prepare();
  if (!status.ok()) return self->Leave(status);
  return session;
}

absl::Status RunSession::Prepare() {
  if (!flags_.resume.empty()) {
    WEFT_ASSIGN_OR_RETURN(resume_, ReadCheckpoint(flags_.resume));
    WEFT_RETURN_IF_ERROR(Annotate(flags_.resume, ContinueFrom(*resume_, &flags_)));
    flags_.steps.reset();
    const auto best = resume_->settings.find(kBestOfCheckpoint);
    if (best != resume_->settings.end()) best_ = best->second;
  }
  step_ = flags_.run.begin_step;
  return Read(DataOf(*given_.main));
}

RunSession::~RunSession() { End().IgnoreError(); }

void RunSession::Free(std::unique_ptr<RunSession> session) {
  const bool is_of_another = session->process_ != 0 && session->process_ != getpid();
  if (is_of_another) static_cast<void>(session.release());
}

absl::Status RunSession::Join(bool in_job) {
  static std::atomic<bool> has_joined{false};
  const GetEnv get = [in_job](const char* name) { return in_job ? std::getenv(name) : nullptr; };
  WEFT_ASSIGN_OR_RETURN(const absl::optional<Job> job, FindJob(get));
  const bool joins = job.has_value() && job->num_processes > 1;
  if (joins && has_joined.exchange(true)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this is process ", job->process, " of ", job->num_processes, " that ", job->launcher,
        " has started, in which one run can join the others, and has: start this one in another "
        "job, or set option backend to local to train the whole in this process"));
  }
  JobSessionOptions options = JobOptions(flags_);
  options.command = absl::StrCat("a run", flags_.resume.empty() ? "" : " that resumes");
  absl::StatusOr<std::unique_ptr<JobSession>> job_session = JobSession::Join(options, get);
  if (joins && !job_session.ok()) has_joined = false;
  WEFT_ASSIGN_OR_RETURN(job_, std::move(job_session));
  flags_.run.nranks *= job_->num_processes();
  flags_.reports = job_->is_first();
  if (job_->is_first()) return absl::OkStatus();
  job_->link()->Listen(JobLink::Topic::kOrder, [this](int, std::string message) {
    std::lock_guard<std::mutex> lock(mutex_);
    heard_.push_back(std::move(message));
    changed_.notify_all();
  });
  return absl::OkStatus();
}

absl::Status RunSession::Leave(const absl::Status& status) {
  if (job_ == nullptr || std::exchange(has_left_, true)) return status;
  if (!job_->is_first()) job_->link()->Listen(JobLink::Topic::kOrder, nullptr);
  return job_->Finish(status);
}

void RunSession::Tell(const std::string& message) {
  for (int process = 1; process < job_->num_processes(); ++process) {
    job_->link()->Send(process, JobLink::Topic::kOrder, message);
  }
}

absl::StatusOr<std::string> RunSession::Hear() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !heard_.empty() || end_.has_value(); });
  if (heard_.empty()) return Fail();
  std::string message = std::move(heard_.front());
  heard_.pop_front();
  return message;
}

absl::Status RunSession::Share(const absl::Status& status) {
  if (job_->is_first()) {
    Tell(StatusMessage(status));
    return status;
  }
  WEFT_ASSIGN_OR_RETURN(const std::string message, Hear());
  return ParseStatus(message);
}

absl::Status RunSession::Read(std::vector<std::string> names) {
  RunFiles given = given_;
  names_ = std::move(names);
  given.feeds.variables = names_;
  given.feeds.when = BatchReader::When::kInTime;
  given.feeds.read = [this](int64_t) { return batch_; };
  WEFT_ASSIGN_OR_RETURN(files_, ReadRunFiles(flags_, job_->link(), std::move(given)));
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
  if (files_->plateau.has_value()) plateau_ = files_->plateau->schedule;
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
  inputs.on_result = [&](const StepResult& result) -> absl::Status {
    std::lock_guard<std::mutex> lock(mutex_);
    if (plateau_.has_value()) WEFT_RETURN_IF_ERROR(plateau_->Add(result));
    if (fetch_.empty()) fetch_ = *result.names;
    results_.push_back(result);
    results_.back().names = &fetch_;
    if (static_cast<int>(results_.size()) < nranks()) return absl::OkStatus();
    is_done_ = true;
    changed_.notify_all();
    return absl::OkStatus();
  };
  bool is_asked = true;  // not for the state at the end
  inputs.on_checkpoint = [&](Checkpoint checkpoint) -> absl::Status {
    is_asked = !control_.has_ended();
    if (!is_asked) return absl::OkStatus();
    checkpoint.settings = SettingsOf(flags_.schedule, plateau_.has_value() ? &*plateau_ : nullptr);
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
  options.link = job_->link();
  options.new_group = job_->new_group();
  ChooseDevice(
      flags_, [this](int rank) { return job_->GpuOf(rank); }, &options);
  if (plateau_.has_value()) {
    options.feedback = Feedback{files_->plateau->variable, plateau_->every(), [this](int64_t step) {
                                  std::lock_guard<std::mutex> lock(mutex_);
                                  return plateau_->RateAt(step);
                                }};
    if (!plateau_->metric().empty()) options.fetch = files_->reported;
  }
  absl::StatusOr<RunResult> result = absl::UnknownError("");
  absl::StatusOr<std::map<std::string, std::string>> settings = JobSettings(flags_, *files_);
  if (settings.ok()) {
    options.settings = *std::move(settings);
    options.settings["the variables of batches"] =
        absl::StrJoin(std::set<std::string>(names_.begin(), names_.end()), ", ");
    result = RunProgram(inputs, options);
  } else {
    result = settings.status();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  end_ = NameFile(flags_, job_->backend(), result.status());
  changed_.notify_all();
}

absl::optional<PlateauSchedule> RunSession::Plateau() {
  std::lock_guard<std::mutex> lock(mutex_);
  absl::optional<PlateauSchedule> plateau = plateau_;
  if (plateau.has_value()) plateau->RateAt(step_);
  return plateau;
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
    is_done_ = false;
  }
  if (nranks() > 1 && job_->is_first()) SayLoneRows(batch);
  WEFT_RETURN_IF_ERROR(SetBatch(std::move(batch)));
  control_.Give(RunControl::Order::kStep);
  WEFT_RETURN_IF_ERROR(WaitForResults());
  ++step_;
  return absl::MakeConstSpan(results_);
}

void RunSession::SayLoneRows(absl::Span<const Tensor> batch) {
  if (has_told_rows_) return;
  std::vector<Dims> dims;
  for (const Tensor& tensor : batch) dims.push_back(tensor.dims());
  std::string text = LoneRowsText(step_, names_, dims, files_->feeds.layouts, nranks());
  has_told_rows_ = !text.empty();
  if (has_told_rows_) {
    Say({Severity::kWarning, absl::StrCat(flags_.main, ": ", text), /*names_command=*/true});
  }
}

absl::Status RunSession::SetBatch(std::vector<Tensor> batch) {
  if (job_->num_processes() > 1) {
    const std::string found = DescribeBatch(names_, batch);
    if (job_->is_first()) {
      Tell(found);
    } else {
      WEFT_ASSIGN_OR_RETURN(const std::string expected, Hear());
      const absl::Status status = CompareBatches(step_, expected, found);
      if (!status.ok()) {
        batch_ = status;
        return absl::OkStatus();
      }
    }
  }
  batch_ = std::move(batch);
  return absl::OkStatus();
}

absl::Status RunSession::WaitForResults() {
  if (!job_->is_first()) {
    if (!std::exchange(has_told_names_, true)) {
      WEFT_ASSIGN_OR_RETURN(const std::string names, Hear());
      fetch_ = absl::StrSplit(names, '\n', absl::SkipEmpty());
    }
    std::vector<StepResult> results;
    for (int rank = 0; rank < nranks(); ++rank) {
      WEFT_ASSIGN_OR_RETURN(const std::string message, Hear());
      WEFT_ASSIGN_OR_RETURN(results.emplace_back(), ParseResult(message));
      results.back().names = &fetch_;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (plateau_.has_value()) {  // process 0 sets the rate; this one follows where it stands
      for (const StepResult& result : results) WEFT_RETURN_IF_ERROR(plateau_->Add(result));
      plateau_->RateAt(step_ + 1);
    }
    results_ = std::move(results);
    batch_ = std::vector<Tensor>();
    return absl::OkStatus();
  }
  WaitBriefly([this] { return is_done_.load(); });
  std::unique_lock<std::mutex> lock = LockBriefly(&mutex_);
  changed_.wait(lock, [this] { return is_done_ || end_.has_value(); });
  batch_ = std::vector<Tensor>();
  // A loss that is not finite is the result of a step, too.
  for (const StepResult& result : results_) {
    if (result.status.ok()) continue;
    changed_.wait(lock, [this] { return end_.has_value(); });
  }
  if (end_.has_value()) return Fail();
  if (job_->num_processes() == 1) return absl::OkStatus();
  if (!std::exchange(has_told_names_, true)) Tell(absl::StrJoin(fetch_, "\n"));
  for (const StepResult& result : results_) {
    WEFT_ASSIGN_OR_RETURN(const std::string message, ResultMessage(result));
    Tell(message);
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> RunSession::State() {
  WEFT_RETURN_IF_ERROR(Begin());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (end_.has_value()) return Fail();
    checkpoint_.reset();
  }
  control_.Give(RunControl::Order::kGiveState);
  return job_->is_first() ? WaitForState() : Checkpoint();
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
  if (!job_->is_first()) {
    WEFT_ASSIGN_OR_RETURN(const std::string message, Hear());
    return ParseTensors(message);
  }
  std::map<std::string, Tensor> tensors = PersistablesOf(*files_->main, checkpoint);
  if (job_->num_processes() > 1) {
    WEFT_ASSIGN_OR_RETURN(const std::string message, TensorsMessage(tensors));
    Tell(message);
  }
  return tensors;
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
  const absl::Status status = job_->is_first() ? WaitForState().status() : absl::OkStatus();
  copies_state_ = true;
  WEFT_RETURN_IF_ERROR(status);
  if (!job_->is_first()) return Share(absl::OkStatus());
  for (const std::string& name : StatisticsOf(main())) own_.erase(name);
  for (const auto& [name, group] : FindGroupVariables(main())) own_.erase(name);
  for (const auto& [name, tensor] : values) {
    if (own_.count(name) == 0) continue;
    return Share(absl::FailedPreconditionError(
        absl::StrCat("variable ", name,
                     ": ranks have values of their own, which one value for all would replace; "
                     "leave it out, set it before they differ, or go on from a checkpoint")));
  }
  return Share(absl::OkStatus());
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
  const absl::Status status = job_->is_first() ? WaitForState().status() : absl::OkStatus();
  copies_state_ = true;
  WEFT_RETURN_IF_ERROR(status);
  return Share(absl::OkStatus());
}

absl::Status RunSession::WriteCheckpoint(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, State());
  return Share(job_->is_first() ? weft::WriteCheckpoint(path, checkpoint) : absl::OkStatus());
}

absl::Status RunSession::Save(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, State());
  return Share(job_->is_first()
                   ? SaveState(path, *files_, PersistablesOf(*files_->main, checkpoint))
                   : absl::OkStatus());
}

absl::Status RunSession::End() {
  if (process_ == 0) {
    end_ = absl::OkStatus();
    if (job_ == nullptr || job_->num_processes() == 1) return absl::OkStatus();
    // The others may wait for it.
    return Leave(absl::AbortedError("the run was ended before its first step"));
  }
  WEFT_RETURN_IF_ERROR(CheckProcess());
  if (thread_.joinable()) {
    control_.Give(RunControl::Order::kEnd);
    thread_.join();
  }
  return Leave(*end_);  // which nobody writes any more
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
