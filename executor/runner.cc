#include "executor/runner.h"

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
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/carried_values.h"
#include "executor/finite.h"
#include "executor/rewrites.h"
#include "executor/run_checks.h"
#include "executor/run_state.h"
#include "executor/scope.h"
#include "executor/step_gate.h"
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
  Failures(CommunicatorGroup* group, Feeder* feeder, StateGate* states)
      : group_(group), feeder_(feeder), states_(states) {}

  // `status` says where it happened.
  void Report(int64_t step, int rank, const absl::Status& status) {
    const Key key = {absl::IsAborted(status), step, rank};
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (cause_.ok() || key < key_of_cause_) {
        key_of_cause_ = key;
        cause_ = status;
      }
    }
    any_.store(true, std::memory_order_relaxed);
    group_->Abort(rank, status);
    feeder_->Stop();
    states_->Stop();
  }

  bool any() const { return any_.load(std::memory_order_relaxed); }

  // The cause: the earliest failure that does not follow from another rank's. Ok if there is none.
  absl::Status Cause() {
    std::lock_guard<std::mutex> lock(mutex_);
    return cause_;
  }

 private:
  // Whether it follows from another rank's failure; step; rank.
  using Key = std::tuple<bool, int64_t, int>;

  CommunicatorGroup* const group_;
  Feeder* const feeder_;
  StateGate* const states_;
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
  absl::optional<std::pair<int, size_t>> Add(int rank, std::vector<size_t> hashes,
                                             const std::vector<const std::vector<int>*>& groups) {
    std::lock_guard<std::mutex> lock(mutex_);
    hashes_[rank] = std::move(hashes);
    if (++num_added_ < hashes_.size()) return absl::nullopt;
    for (size_t other = 1; other < hashes_.size(); ++other) {
      for (size_t i = 0; i < hashes_[0].size(); ++i) {
        const std::vector<int>* const group = groups[i];
        if (group != nullptr && !absl::c_linear_search(*group, static_cast<int>(other))) continue;
        const int first = group == nullptr ? 0 : group->front();
        if (hashes_[other][i] != hashes_[first][i]) {
          return std::make_pair(static_cast<int>(other), i);
        }
      }
    }
    return absl::nullopt;
  }

 private:
  std::mutex mutex_;
  size_t num_added_ = 0;
  std::vector<std::vector<size_t>> hashes_;  // by rank
};

// What all ranks share.
struct Job {
  Job(const RunInputs& run_inputs, const RunOptions& run_options)
      : inputs(run_inputs), options(run_options), start_values(run_options.nranks) {}

  const RunInputs& inputs;
  const RunOptions& options;
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
  std::unique_ptr<StepGate> steps;
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
    WEFT_ASSIGN_OR_RETURN(device_, job_.options.new_device(rank_, job_.group->host_memory()));
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
    return job_.states->Pass(rank_, *std::move(state));
  }

  // Warns if the startup program leaves a persistable variable with another value than on rank 0.
  // The run goes on: the main program may mean that.
  absl::Status CompareStartValues() {
    if (job_.options.nranks == 1 || !job_.startup_plan.has_value() || !job_.options.warn) {
      return absl::OkStatus();
    }
    std::vector<size_t> hashes;
    std::vector<absl::string_view> names;
    std::vector<const std::vector<int>*> groups;
    for (const Plan::Variable& variable : job_.main_plan->variables) {
      if (!variable.persistable) continue;
      const Value* const value = scope_.Find(variable.name);
      names.push_back(variable.name);
      groups.push_back(job_.GroupOf(variable.name));
      hashes.push_back(0);
      if (value == nullptr || !value->tensor.allocated()) continue;
      WEFT_ASSIGN_OR_RETURN(const Tensor tensor, value->tensor.ToHost());
      const absl::string_view bytes(static_cast<const char*>(tensor.raw()), tensor.bytes());
      hashes.back() = absl::HashOf(tensor.dims(), bytes);
    }
    const auto differing = job_.start_values.Add(rank_, std::move(hashes), groups);
    if (differing.has_value()) {
      const std::vector<int>* const group = groups[differing->second];
      job_.options.warn(absl::StrCat("rank ", differing->first, " begins with another value of ",
                                     names[differing->second], " than rank ",
                                     group == nullptr ? 0 : group->front()));
    }
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
    return job_.results->Post(std::move(result));
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
  WEFT_ASSIGN_OR_RETURN(job->feeder, Feeder::Create(plan, job->inputs.feeds, job->options.nranks,
                                                    job->options.steps, job->options.begin_step));
  WEFT_RETURN_IF_ERROR(CheckFeeds(*job->inputs.main, plan, job->inputs.feeds, job->options.nranks,
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

absl::Status PrepareSharedState(Job* job) {
  const RunOptions& options = job->options;
  job->results = std::make_unique<ResultQueue>(options.nranks, job->fetch_names,
                                               job->inputs.on_result, options.begin_step);
  WEFT_ASSIGN_OR_RETURN(job->group, options.new_group({options.nranks, options.warn_after_s,
                                                       options.timeout_s, options.warn}));
  const int64_t end_step = options.begin_step + options.steps;
  job->steps = std::make_unique<StepGate>(options.begin_step, end_step, options.stop_requested);
  job->states =
      std::make_unique<StateGate>(options.nranks, [job, end_step](std::vector<RankState> ranks) {
        Checkpoint checkpoint;
        checkpoint.end_step = end_step;
        checkpoint.seed = job->options.seed;
        MergeStates(std::move(ranks), &checkpoint);
        return job->inputs.on_checkpoint(std::move(checkpoint));
      });
  job->failures =
      std::make_unique<Failures>(job->group.get(), job->feeder.get(), job->states.get());
  return absl::OkStatus();
}

void RunRanks(Job* job, std::deque<RankRunner>* ranks) {
  const int num_ranks = job->options.nranks;
  for (int rank = 0; rank < num_ranks; ++rank) ranks->emplace_back(job, rank);
  std::vector<std::thread> threads;
  threads.reserve(num_ranks);  // nothing may throw while threads are running
  for (int rank = 0; rank < num_ranks; ++rank) {
    try {
      threads.emplace_back([ranks, rank] { (*ranks)[rank].Run(); });
    } catch (const std::exception& error) {  // system_error or bad_alloc
      job->failures->Report(kStartup, rank,
                            absl::ResourceExhaustedError(
                                absl::StrCat("no thread for rank ", rank, ": ", error.what())));
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

absl::StatusOr<RunResult> RunProgram(const RunInputs& inputs, const RunOptions& options) {
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
  for (const Plan::Variable& variable : job.main_plan->variables) {
    if (!variable.persistable) continue;
    const std::vector<int>* const group = job.GroupOf(variable.name);
    const int rank = group == nullptr ? 0 : group->front();
    const Value* value = ranks[rank].scope()->Find(variable.name);
    if (value == nullptr || !value->tensor.allocated()) continue;
    // The memory of a group does not outlive it.
    Tensor* const result_value = &result.persistables[variable.name];
    if (job.group->host_memory() != nullptr) {
      WEFT_RETURN_IF_ERROR(result_value->CopyFrom(value->tensor));
    } else {
      WEFT_ASSIGN_OR_RETURN(*result_value, value->tensor.ToHost());
    }
  }
  return result;
}

}  // namespace weft
