#include "executor/runner.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/carried_values.h"
#include "executor/finite.h"
#include "executor/plan_agreement.h"
#include "executor/rewrites.h"
#include "executor/run_checks.h"
#include "executor/run_messages.h"
#include "executor/run_state.h"
#include "executor/scope.h"
#include "executor/state_exchange.h"
#include "executor/step_gate.h"
#include "executor/world.h"
#include "ops/analysis/group_variables.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

constexpr int64_t kStartup = -1;  // as a step

absl::Status WithStepAndRank(int64_t step, int rank, const absl::Status& status) {
  const std::string when = step == kStartup ? "startup" : absl::StrCat("step ", step);
  return Annotate(absl::StrCat(when, ", rank ", rank), status);
}

// The generators of a step; they do not depend on earlier draws.
RandomState DrawsOfStep(uint64_t seed, int rank, int64_t step) {
  // seed_seq uses the low 32 bits of each number. The lengths differ from each other and from those
  // of RandomState::Seeded, so that no two generators are the same.
  const auto low = static_cast<uint64_t>(step), high = low >> 32;
  std::seed_seq initializers{seed, low, high};
  std::seed_seq dropout{seed, low, high, static_cast<uint64_t>(rank) + 1};
  return RandomState{std::mt19937_64(initializers), std::mt19937_64(dropout)};
}

// Whether an op may draw random numbers.
bool MayDraw(const Plan& plan) {
  return absl::c_any_of(plan.ops, [](const Plan::PlanOp& op) {
    const OpSchema* const schema = op.kernel_spec.schema;
    return op.make_kernel != nullptr && (schema == nullptr || schema->Has(Trait::kSideEffect));
  });
}

// Collects the errors of all ranks; the first one ends the run.
class Failures {
 public:
  // `stop` releases what ranks wait for besides collectives.
  Failures(CommunicatorGroup* group, JobLink* link, std::function<void()> stop)
      : group_(group), link_(link), stop_(std::move(stop)) {}

  // `status` says where it happened.
  void Report(int64_t step, int rank, const absl::Status& status) {
    Add({absl::IsAborted(status) ? Origin::kFollows : Origin::kHere, step, rank}, status);
    if (link_ != nullptr) link_->Abort(rank, status);
    group_->Abort(Annotate(absl::StrCat("rank ", rank, " failed"), status));
    stop_();
  }

  // Another process has failed, or is gone (JobLink::OnFailure).
  void ReportElsewhere(const absl::Status& status) {
    Add({Origin::kElsewhere, 0, 0}, status);
    group_->Abort(status);
    stop_();
  }

  bool any() const { return any_.load(std::memory_order_relaxed); }

  // The cause: the earliest failure that does not follow from another rank's. Ok if there is none.
  absl::Status Cause() {
    std::lock_guard<std::mutex> lock(mutex_);
    return cause_;
  }

 private:
  enum class Origin { kHere, kElsewhere, kFollows };
  // Origin; step; rank.
  using Key = std::tuple<Origin, int64_t, int>;

  void Add(const Key& key, const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (cause_.ok() || key < key_of_cause_) {
      key_of_cause_ = key;
      cause_ = status;
    }
    any_.store(true, std::memory_order_relaxed);
  }

  CommunicatorGroup* const group_;
  JobLink* const link_;
  const std::function<void()> stop_;
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  absl::Status cause_;
  Key key_of_cause_;
};

// Compares the values with which ranks begin.
class StartValues {
 public:
  explicit StartValues(int nranks) : hashes_(nranks) {}

  // Hashes of the variables of a rank, in the same order on all ranks. Returns the first rank that
  // has another value than the first rank that should have the same, and the position of the
  // variable, once all ranks have added theirs; none before, and if there is no such rank.
  // `groups`, by variable: the ranks that should have equal values; null: all.
  absl::optional<std::pair<int, size_t>> Add(int rank, std::vector<uint64_t> hashes,
                                             const std::vector<const std::vector<int>*>& groups) {
    std::lock_guard<std::mutex> lock(mutex_);
    hashes_[rank] = std::move(hashes);
    if (++num_added_ < hashes_.size()) return absl::nullopt;
    for (size_t other = 1; other < hashes_.size(); ++other) {
      for (size_t i = 0; i < groups.size(); ++i) {
        const std::vector<int>* const group = groups[i];
        if (group != nullptr && !absl::c_linear_search(*group, static_cast<int>(other))) continue;
        const int first = group == nullptr ? 0 : group->front();
        if (HashOf(static_cast<int>(other), i) != HashOf(first, i)) {
          return std::make_pair(static_cast<int>(other), i);
        }
      }
    }
    return absl::nullopt;
  }

 private:
  uint64_t HashOf(int rank, size_t i) const {
    return i < hashes_[rank].size() ? hashes_[rank][i] : 0;
  }

  std::mutex mutex_;
  size_t num_added_ = 0;
  std::vector<std::vector<uint64_t>> hashes_;  // by rank
};

// What all ranks share.
struct Job {
  Job(const RunInputs& run_inputs, const RunOptions& run_options)
      : inputs(run_inputs),
        options(run_options),
        world(WorldOf(run_options.nranks, run_options.link)),
        start_values(run_options.nranks) {}

  // The link calls none of the others any more.
  ~Job() {
    if (options.link == nullptr) return;
    options.link->OnFailure(nullptr);
    options.link->Listen(JobLink::Topic::kStart, nullptr);
    options.link->Listen(JobLink::Topic::kResult, nullptr);
  }

  const RunInputs& inputs;
  const RunOptions& options;
  const World world;
  absl::optional<Plan> startup_plan;
  absl::optional<Plan> main_plan;
  bool main_may_draw = false;
  std::unique_ptr<Feeder> feeder;
  std::vector<int> fetch;
  std::vector<std::string> fetch_names;
  std::vector<int> accessed;  // between steps, besides persistable variables
  std::vector<StateVariable> state;
  std::map<std::string, std::vector<int>> groups;  // of variables that some ranks keep equal

  // The ranks that keep the variable equal; null: all.
  const std::vector<int>* GroupOf(const std::string& name) const {
    const auto found = groups.find(name);
    return found == groups.end() ? nullptr : &found->second;
  }

  // Process 0 compares the values of all ranks: hashes, by persistable variable of the main plan.
  void CompareStartValues(int rank, std::vector<uint64_t> hashes) {
    if (world.process() > 0) {
      hashes.push_back(rank);
      return options.link->Send(0, JobLink::Topic::kStart, NumbersMessage(hashes));
    }
    std::vector<absl::string_view> names;
    std::vector<const std::vector<int>*> keepers;
    for (const Plan::Variable& variable : main_plan->variables) {
      if (!variable.persistable) continue;
      names.push_back(variable.name);
      keepers.push_back(GroupOf(variable.name));
    }
    const auto differing = start_values.Add(rank, std::move(hashes), keepers);
    if (!differing.has_value() || !options.warn) return;
    const std::vector<int>* const group = keepers[differing->second];
    options.warn(absl::StrCat("rank ", differing->first, " begins with another value of ",
                              names[differing->second], " than rank ",
                              group == nullptr ? 0 : group->front()));
  }

  // Results come to process 0.
  absl::Status Post(StepResult result) {
    if (world.process() == 0) return results->Post(std::move(result));
    WEFT_ASSIGN_OR_RETURN(std::string message, ResultMessage(result));
    options.link->Send(0, JobLink::Topic::kResult, std::move(message));
    return result.status;
  }

  std::unique_ptr<StepGate> steps;
  std::unique_ptr<StateExchange> exchange;  // null: this process has all ranks
  std::unique_ptr<StateGate> states;
  std::unique_ptr<ResultQueue> results;
  std::unique_ptr<CommunicatorGroup> group;
  std::unique_ptr<Failures> failures;
  StartValues start_values;
  std::mutex trace_mutex;  // serializes calls of inputs.on_trace
};

// One rank: its variables and generators, and the work of its host thread.
class RankRunner {
 public:
  RankRunner(Job* job, int rank)
      : job_(*job), rank_(rank), random_(RandomState::Seeded(job->options.seed, rank)) {}

  void Run() {
    absl::Status status;
    try {
      status = RunAll();
    } catch (const std::bad_alloc&) {
      // Feeds, parameters and results are allocated on this thread.
      status = WithStepAndRank(step_, rank_, absl::ResourceExhaustedError("out of memory"));
    }
    if (!status.ok()) job_.failures->Report(step_, rank_, status);
  }

  Scope* scope() { return &scope_; }
  const ValueMemory& memory() const { return memory_; }  // after the last step

 private:
  absl::Status RunAll() {
    WEFT_ASSIGN_OR_RETURN(device_, job_.options.new_device(rank_));
    if (job_.inputs.resume != nullptr) return Resume();
    if (job_.startup_plan.has_value()) {
      WEFT_ASSIGN_OR_RETURN(const auto executor, NewExecutor(*job_.startup_plan));
      WEFT_RETURN_IF_ERROR(WithStepAndRank(step_, rank_, executor->RunStep()));
    }
    if (job_.inputs.params != nullptr) {
      for (const auto& [name, tensor] : *job_.inputs.params) {
        Tensor* value = &scope_.FindOrCreate(name)->tensor;
        *value = Tensor(device_->memory());
        WEFT_RETURN_IF_ERROR(value->CopyFrom(tensor));
      }
    }
    WEFT_RETURN_IF_ERROR(CompareStartValues());
    WEFT_ASSIGN_OR_RETURN(const auto executor, NewExecutor(*job_.main_plan));
    return RunSteps(executor.get());
  }

  absl::Status Resume() {
    const Checkpoint& checkpoint = *job_.inputs.resume;
    WEFT_ASSIGN_OR_RETURN(const auto executor, NewExecutor(*job_.main_plan));
    for (const StateVariable& variable : job_.state) {
      const Tensor* const value = FindValue(checkpoint, rank_, variable.name);
      if (value == nullptr) continue;
      WEFT_RETURN_IF_ERROR(executor->tensor(variable.variable)->CopyFrom(*value));
    }
    if (checkpoint.nranks == job_.options.nranks && !checkpoint.random[rank_].empty()) {
      WEFT_ASSIGN_OR_RETURN(random_, ParseRandomText(checkpoint.random[rank_]));
    }
    return RunSteps(executor.get());
  }

  absl::Status RunSteps(PlanExecutor* executor) {
    const int64_t begin = job_.options.begin_step, every = job_.options.checkpoint_every;
    for (step_ = begin; !job_.failures->any(); ++step_) {
      const bool is_due = every > 0 && step_ > begin && step_ % every == 0;
      if (is_due) WEFT_RETURN_IF_ERROR(GiveState(executor));
      if (!job_.steps->Begins(step_)) {
        if (!is_due) WEFT_RETURN_IF_ERROR(GiveState(executor));
        break;
      }
      WEFT_RETURN_IF_ERROR(RunStep(executor));
    }
    memory_ = executor->memory();
    return absl::OkStatus();
  }

  // Waits for all ranks.
  absl::Status GiveState(PlanExecutor* executor) {
    if (!job_.inputs.on_checkpoint) return absl::OkStatus();
    absl::StatusOr<RankState> state = ReadState(job_.state, executor->tensors());
    if (!state.ok()) return WithStepAndRank(step_, rank_, state.status());
    state->step = step_;
    // Those of later steps follow from the seed.
    if (step_ == 0 && job_.main_may_draw) state->random = RandomText(random_);
    return job_.states->Pass(rank_ - job_.world.first, *std::move(state));
  }

  // Warns if the startup program leaves a persistable variable with another value than on rank 0.
  // The run goes on: the main program may mean that.
  absl::Status CompareStartValues() {
    if (job_.world.size == 1 || !job_.startup_plan.has_value()) return absl::OkStatus();
    std::vector<uint64_t> hashes;
    for (const Plan::Variable& variable : job_.main_plan->variables) {
      if (!variable.persistable) continue;
      const Value* const value = scope_.Find(variable.name);
      hashes.push_back(0);
      if (value == nullptr || !value->tensor.allocated()) continue;
      WEFT_ASSIGN_OR_RETURN(const Tensor tensor, value->tensor.ToHost());
      const uint64_t dims =
          XXH3_64bits(tensor.dims().data(), tensor.dims().size() * sizeof(int64_t));
      hashes.back() = XXH3_64bits_withSeed(tensor.raw(), tensor.bytes(), dims);
    }
    job_.CompareStartValues(rank_, std::move(hashes));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<PlanExecutor>> NewExecutor(const Plan& plan) {
    PlanExecutorOptions options;
    options.plan = &plan;
    options.scope = &scope_;
    options.device = device_.get();
    options.group = job_.group.get();
    options.rank = rank_;
    options.random = &random_;
    if (&plan == &*job_.main_plan) {
      options.accessed = job_.accessed;
    }
    options.threads = job_.options.threads;
    options.check_nan = job_.options.check_nan;
    options.trace = job_.inputs.on_trace != nullptr;
    options.timeout_s = job_.options.timeout_s;
    options.is_aborted = [this] { return job_.failures->any(); };
    options.on_error = [this](const absl::Status& status) {
      job_.failures->Report(step_, rank_, WithStepAndRank(step_, rank_, status));
    };
    return PlanExecutor::Create(options);
  }

  absl::Status RunStep(PlanExecutor* executor) {
    const auto start = std::chrono::steady_clock::now();
    // Seeding takes 10 us.
    if (step_ > 0 && job_.main_may_draw) random_ = DrawsOfStep(job_.options.seed, rank_, step_);
    WEFT_RETURN_IF_ERROR(job_.feeder->Feed(step_, rank_, executor->tensors()));
    WEFT_RETURN_IF_ERROR(WithStepAndRank(step_, rank_, executor->RunStep()));
    WEFT_RETURN_IF_ERROR(ReportTrace(*executor));
    StepResult result;
    result.step = step_;
    result.rank = rank_;
    result.samples = job_.feeder->samples(executor->tensors());
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

  absl::Status ReportTrace(const PlanExecutor& executor) {
    if (!job_.inputs.on_trace) return absl::OkStatus();
    std::lock_guard<std::mutex> lock(job_.trace_mutex);
    return job_.inputs.on_trace({step_, rank_, &*job_.main_plan, executor.spans()});
  }

  // Whether or not they are fetched.
  absl::Status CheckLosses(PlanExecutor* executor) const {
    for (int variable : job_.main_plan->losses) {
      WEFT_ASSIGN_OR_RETURN(const Tensor loss, executor->tensor(variable)->ToHost());
      const absl::string_view found = FirstNonFinite(loss);
      if (found.empty()) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("loss ", job_.main_plan->variables[variable].name, " is ", found));
    }
    return absl::OkStatus();
  }

  Job& job_;
  const int rank_;
  // Read by the streams in on_error; written while they are idle.
  int64_t step_ = kStartup;
  std::unique_ptr<Device> device_;  // destroyed after everything in its memory
  RandomState random_;
  Scope scope_;
  ValueMemory memory_;
};

absl::Status CheckOptions(const RunInputs& inputs, const RunOptions& options) {
  if (inputs.main == nullptr || options.kernels == nullptr) {
    return absl::InvalidArgumentError("a run needs a main program and kernels");
  }
  if (options.nranks < 1 || options.nranks > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranks: expected 1 to ", kMaxRanks, ", found ", options.nranks));
  }
  if (options.link != nullptr && options.nranks % options.link->num_processes() != 0) {
    return absl::InvalidArgumentError(absl::StrCat("ranks: expected a multiple of the ",
                                                   options.link->num_processes(),
                                                   " processes, found ", options.nranks));
  }
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads: expected 1 to ", kMaxThreads, ", found ", options.threads));
  }
  if (options.steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("steps: expected 0 or more, found ", options.steps));
  }
  const int64_t last_begin = std::numeric_limits<int64_t>::max() - options.steps;
  if (options.begin_step < 0 || options.begin_step > last_begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("begin_step: expected 0 to ", last_begin, ", found ", options.begin_step));
  }
  if (!(options.timeout_s > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout: expected more than 0 s, found ", options.timeout_s));
  }
  if (options.checkpoint_every < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint_every: expected 0 or more, found ", options.checkpoint_every));
  }
  if (inputs.resume != nullptr && inputs.resume->step != options.begin_step) {
    return absl::InvalidArgumentError(absl::StrCat("begin_step: expected that of the checkpoint, ",
                                                   inputs.resume->step, ", found ",
                                                   options.begin_step));
  }
  return absl::OkStatus();
}

// Adds to `holds_value` the persistable variables that the program writes.
absl::Status PrepareStartup(Job* job, NameSet* holds_value) {
  if (job->inputs.startup == nullptr || job->inputs.resume != nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(job->startup_plan, Plan::Build(*job->inputs.startup, job->options));
  const Plan& plan = *job->startup_plan;
  WEFT_RETURN_IF_ERROR(CheckInitialized(plan, {}, {}));
  for (const Plan::Variable& variable : plan.variables) {
    if (variable.persistable && variable.is_written) holds_value->insert(variable.name);
  }
  return absl::OkStatus();
}

// Finds the state of the run, and compares it with the checkpoint with which the run begins.
absl::Status PrepareState(Job* job) {
  const Plan& plan = *job->main_plan;
  const std::vector<int> carried = FindCarriedValues(plan, job->feeder->variables());
  // In every run, so that checkpoints do not change how the plan is rewritten, and its last bits.
  job->accessed.insert(job->accessed.end(), carried.begin(), carried.end());
  if (job->inputs.on_checkpoint == nullptr && job->inputs.resume == nullptr) {
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(job->state, StateOf(plan, carried));
  if (job->inputs.resume == nullptr) return absl::OkStatus();
  return Annotate("checkpoint",
                  CheckResume(*job->inputs.resume, plan, job->state, job->options.nranks));
}

absl::Status PrepareMain(Job* job, NameSet holds_value) {
  WEFT_ASSIGN_OR_RETURN(job->main_plan, Plan::Build(*job->inputs.main, job->options));
  const Plan& plan = *job->main_plan;
  job->main_may_draw = MayDraw(plan);
  job->groups = FindGroupVariables(*job->inputs.main);
  if (!job->options.allow_unsynchronized) {
    WEFT_RETURN_IF_ERROR(CheckSynchronized(*job->inputs.main, job->options.nranks));
  }
  const Checkpoint* const resume = job->inputs.resume;
  if (resume != nullptr) {
    for (const auto& [name, tensor] : resume->shared) holds_value.insert(name);
    for (const auto& own : resume->own) {
      for (const auto& [name, tensor] : own) holds_value.insert(name);
    }
  }
  if (job->inputs.params != nullptr && resume == nullptr) {
    for (const auto& [name, tensor] : *job->inputs.params) {
      const TensorType type = {tensor.dtype(), tensor.dims()};
      WEFT_RETURN_IF_ERROR(CheckParam(*job->inputs.main, name, type));
      holds_value.insert(name);
    }
  }
  WEFT_ASSIGN_OR_RETURN(job->feeder, Feeder::Create(plan, job->inputs.feeds, job->world,
                                                    job->options.steps, job->options.begin_step));
  WEFT_RETURN_IF_ERROR(CheckFeeds(*job->inputs.main, plan, job->inputs.feeds, job->world,
                                  job->options.steps, job->options.begin_step));
  WEFT_RETURN_IF_ERROR(PrepareState(job));
  WEFT_RETURN_IF_ERROR(CheckInitialized(plan, holds_value, job->feeder->variables()));
  WEFT_ASSIGN_OR_RETURN(job->fetch, ResolveFetch(plan, job->options.fetch));
  for (int variable : job->fetch) job->fetch_names.push_back(plan.variables[variable].name);
  job->accessed.insert(job->accessed.end(), job->fetch.begin(), job->fetch.end());
  for (const std::vector<int>* variables : {&job->feeder->variables(), &plan.losses}) {
    job->accessed.insert(job->accessed.end(), variables->begin(), variables->end());
  }
  if (job->options.rewrites_plan) {
    // Every op is checked by itself.
    const bool fuses_ops = !job->options.check_nan;
    RewritePlan(*job->options.kernels, {job->accessed, fuses_ops}, &*job->main_plan);
  }
  return absl::OkStatus();
}

// What all processes must agree on, besides the programs.
std::map<std::string, std::string> SettingsOf(const Job& job) {
  const RunOptions& options = job.options;
  const auto yes_or_no = [](bool yes) { return std::string(yes ? "yes" : "no"); };
  return {{"ranks", absl::StrCat(options.nranks)},
          {"seed", absl::StrCat(options.seed)},
          {"steps", absl::StrCat(options.steps)},
          {"the first step", absl::StrCat(options.begin_step)},
          {"steps between checkpoints", absl::StrCat(options.checkpoint_every)},
          {"writing checkpoints", yes_or_no(job.inputs.on_checkpoint != nullptr)},
          {"resuming", yes_or_no(job.inputs.resume != nullptr)},
          {"a startup program", yes_or_no(job.startup_plan.has_value())},
          {"fetched variables", absl::StrJoin(job.fetch_names, ", ")}};
}

// Compares what the processes are about to do, and sets the rings up.
absl::Status PrepareGroup(Job* job) {
  const RunOptions& options = job->options;
  GroupOptions group = {options.nranks, options.warn_after_s, options.timeout_s, options.warn};
  if (options.link != nullptr) {
    RunFingerprint fingerprint;
    fingerprint.settings = SettingsOf(*job);
    if (job->startup_plan.has_value()) AddCalls(*job->startup_plan, &fingerprint);
    AddCalls(*job->main_plan, &fingerprint);
    group.link = options.link;
    WEFT_ASSIGN_OR_RETURN(group.rings, AgreeOnPlan(fingerprint, job->world, options.link));
  }
  WEFT_ASSIGN_OR_RETURN(job->group, options.new_group(std::move(group)));
  return absl::OkStatus();
}

// Process 0 makes a checkpoint of the states of all ranks.
void PrepareStates(Job* job, int64_t end_step) {
  StateGate::Use use = [job, end_step](std::vector<RankState> ranks) {
    Checkpoint checkpoint;
    checkpoint.end_step = end_step;
    checkpoint.seed = job->options.seed;
    MergeStates(std::move(ranks), &checkpoint);
    return job->inputs.on_checkpoint(std::move(checkpoint));
  };
  if (job->options.link != nullptr) {
    job->exchange = std::make_unique<StateExchange>(job->world, job->options.link, std::move(use));
    use = [job](std::vector<RankState> ranks) { return job->exchange->Exchange(std::move(ranks)); };
  }
  job->states = std::make_unique<StateGate>(job->world.count, std::move(use));
}

// Receives what other processes send.
void ListenToLink(Job* job) {
  JobLink* const link = job->options.link;
  if (job->world.process() == 0) {
    link->Listen(JobLink::Topic::kStart, [job](int /*process*/, const std::string& message) {
      absl::StatusOr<std::vector<uint64_t>> numbers = ParseNumbers(message);
      if (!numbers.ok() || numbers->empty()) return;  // only a warning depends on it
      const uint64_t rank = numbers->back();
      numbers->pop_back();
      if (rank >= static_cast<uint64_t>(job->world.size)) return;
      job->CompareStartValues(static_cast<int>(rank), *std::move(numbers));
    });
    link->Listen(JobLink::Topic::kResult, [job](int process, const std::string& message) {
      absl::StatusOr<StepResult> result = ParseResult(message);
      const int rank = result.ok() ? result->rank : process * job->world.count;
      const int64_t step = result.ok() ? result->step : job->options.begin_step;
      const absl::Status status =
          result.ok() ? job->results->Post(*std::move(result)) : result.status();
      if (!status.ok()) job->failures->Report(step, rank, status);
    });
  }
  link->OnFailure([job](const absl::Status& status) { job->failures->ReportElsewhere(status); });
}

absl::Status PrepareSharedState(Job* job) {
  const RunOptions& options = job->options;
  job->results = std::make_unique<ResultQueue>(options.nranks, job->fetch_names,
                                               job->inputs.on_result, options.begin_step);
  WEFT_RETURN_IF_ERROR(PrepareGroup(job));
  const int64_t end_step = options.begin_step + options.steps;
  job->steps = std::make_unique<StepGate>(options.begin_step, end_step, options.stop_requested,
                                          options.link);
  PrepareStates(job, end_step);
  job->failures = std::make_unique<Failures>(job->group.get(), options.link, [job] {
    job->feeder->Stop();
    job->steps->Stop();
    job->states->Stop();
    if (job->exchange != nullptr) job->exchange->Stop();
    job->results->Stop();
  });
  if (options.link != nullptr) ListenToLink(job);
  return absl::OkStatus();
}

void RunRanks(Job* job, std::deque<RankRunner>* ranks) {
  const World& world = job->world;
  for (int rank = world.first; rank < world.end(); ++rank) ranks->emplace_back(job, rank);
  std::vector<std::thread> threads;
  threads.reserve(world.count);  // nothing may throw while threads are running
  for (int rank = world.first; rank < world.end(); ++rank) {
    RankRunner* const runner = &(*ranks)[rank - world.first];
    try {
      threads.emplace_back([runner] { runner->Run(); });
    } catch (const std::exception& error) {  // system_error or bad_alloc
      job->failures->Report(kStartup, rank,
                            absl::ResourceExhaustedError(
                                absl::StrCat("no thread for rank ", rank, ": ", error.what())));
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
}

// Persistable variables whose values are those of ranks of this process.
absl::StatusOr<std::map<std::string, Tensor>> PersistablesHere(const Job& job,
                                                               std::deque<RankRunner>* ranks) {
  std::map<std::string, Tensor> persistables;
  for (const Plan::Variable& variable : job.main_plan->variables) {
    if (!variable.persistable) continue;
    const std::vector<int>* const group = job.GroupOf(variable.name);
    const int rank = group == nullptr ? 0 : group->front();
    if (!job.world.Has(rank)) continue;
    const Value* value = (*ranks)[rank - job.world.first].scope()->Find(variable.name);
    if (value == nullptr || !value->tensor.allocated()) continue;
    WEFT_ASSIGN_OR_RETURN(const Tensor tensor, value->tensor.ToHost());
    // The memory of ranks may end with the run.
    persistables[variable.name] = job.options.link == nullptr ? tensor : tensor.Clone();
  }
  return persistables;
}

// Waits until all processes have done all steps. Brings to process 0 what it lacks.
absl::Status Conclude(Job* job, RunResult* result) {
  JobLink* const link = job->options.link;
  if (job->world.process() == 0) {
    const absl::Status status = job->results->WaitUntil(result->end_step);
    WEFT_RETURN_IF_ERROR(job->failures->Cause());
    WEFT_RETURN_IF_ERROR(status);
  }
  std::map<std::string, Tensor> own;
  if (job->world.process() > 0) own.swap(result->persistables);
  WEFT_ASSIGN_OR_RETURN(std::string message, TensorsMessage(own));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> texts, link->AllGather(std::move(message)));
  if (job->world.process() > 0) return absl::OkStatus();
  for (const std::string& text : texts) {
    WEFT_ASSIGN_OR_RETURN(auto tensors, ParseTensors(text));
    result->persistables.merge(tensors);
  }
  return absl::OkStatus();
}

absl::StatusOr<RunResult> RunHere(const RunInputs& inputs, const RunOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckOptions(inputs, options));
  Job job(inputs, options);
  NameSet holds_value;
  WEFT_RETURN_IF_ERROR(Annotate("startup program", PrepareStartup(&job, &holds_value)));
  WEFT_RETURN_IF_ERROR(PrepareMain(&job, std::move(holds_value)));
  WEFT_RETURN_IF_ERROR(PrepareSharedState(&job));

  std::deque<RankRunner> ranks;
  RunRanks(&job, &ranks);
  WEFT_RETURN_IF_ERROR(job.failures->Cause());

  RunResult result;
  result.end_step = job.steps->end();
  result.fetch = job.fetch_names;
  result.memory = ranks[0].memory();
  WEFT_ASSIGN_OR_RETURN(result.persistables, PersistablesHere(job, &ranks));
  if (options.link != nullptr) WEFT_RETURN_IF_ERROR(Conclude(&job, &result));
  return result;
}

}  // namespace

absl::StatusOr<RunResult> RunProgram(const RunInputs& inputs, const RunOptions& options) {
  absl::StatusOr<RunResult> result = RunHere(inputs, options);
  // The others need not wait for this process. Those that have failed, or know, do not listen.
  if (!result.ok() && options.link != nullptr) {
    const World world = WorldOf(options.nranks, options.link);
    options.link->Abort(world.first, result.status());
  }
  return result;
}

}  // namespace weft
