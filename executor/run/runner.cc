#include "executor/run/runner.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/communicators/self_test.h"
#include "executor/plan/carried_values.h"
#include "executor/plan/run_checks.h"
#include "executor/plan/startup_parts.h"
#include "executor/rewrites/rewrites.h"
#include "executor/run/plan_agreement.h"
#include "executor/run/rank_runner.h"
#include "executor/run/run_buffers.h"
#include "executor/run/run_control.h"
#include "executor/run/run_job.h"
#include "executor/run/run_messages.h"
#include "executor/run/run_state.h"
#include "executor/run/server_rank.h"
#include "executor/run/server_values.h"
#include "ops/analysis/core/group_variables.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/kernel_util.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/setting.h"

namespace weft {
namespace {

// Whether an op may draw random numbers.
bool MayDraw(const Plan& plan) {
  return absl::c_any_of(plan.ops, [](const Plan::PlanOp& op) {
    const OpSchema* const schema = op.kernel_spec.schema;
    return op.factory() != nullptr && (schema == nullptr || schema->Has(Trait::kSideEffect));
  });
}

absl::Status CheckServerOptions(const RunInputs& inputs, const RunOptions& options,
                                int num_processes) {
  if (options.num_servers < 0 || (options.num_servers > 0) != (inputs.server != nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter servers: expected ",
        inputs.server != nullptr ? "one or more, as there is a program for them"
                                 : "a program for them",
        ", found ", inputs.server != nullptr ? absl::StrCat(options.num_servers) : "none"));
  }
  if (inputs.resume != nullptr && inputs.resume->num_servers != options.num_servers) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter servers: expected as many as the checkpoint has, ",
                     inputs.resume->num_servers, ", found ", options.num_servers));
  }
  const int of_process = (options.nranks + options.num_servers) / num_processes;
  if (num_processes == 1 || options.num_servers == 0 || of_process == 0 ||
      options.num_servers % of_process == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("parameter servers: expected a multiple of ", of_process,
                   ", the ranks of a process, so that a process has workers or servers, found ",
                   options.num_servers));
}

absl::Status CheckOptions(const RunInputs& inputs, const RunOptions& options) {
  if (inputs.main == nullptr || options.kernels == nullptr) {
    return absl::InvalidArgumentError("a run needs a main program and kernels");
  }
  const int num_processes = options.link == nullptr ? 1 : options.link->num_processes();
  WEFT_RETURN_IF_ERROR(CheckServerOptions(inputs, options, num_processes));
  const int num_ranks = options.nranks + options.num_servers;
  if (options.control != nullptr && options.num_servers > 0) {
    return absl::UnimplementedError(
        "a run whose steps are ordered one by one: expected none of the parameter servers");
  }
  if (options.nranks < 1 || num_ranks > kMaxRanks * num_processes) {
    return absl::InvalidArgumentError(absl::StrCat("ranks: expected 1 to ", kMaxRanks,
                                                   num_processes == 1 ? "" : " a process",
                                                   ", found ", num_ranks));
  }
  if (options.kept != nullptr) {
    if (num_ranks < num_processes || options.num_servers > 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a run that keeps states: expected as many ranks as processes, ", num_processes,
          ", or more, and no parameter servers, found ", num_ranks, " and ", options.num_servers));
    }
  } else if (num_ranks % num_processes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("ranks: expected a multiple of the ",
                                                   num_processes, " processes, found ", num_ranks));
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
    return absl::InvalidArgumentError(
        absl::StrCat("begin_step: expected the step of the checkpoint, ", inputs.resume->step,
                     ", found ", options.begin_step));
  }
  return absl::OkStatus();
}

// Whether a rank of this process has a program of its own: other ranks have other messages.
bool HasMessages(const Plan& plan) {
  return absl::c_any_of(plan.ops,
                        [](const Plan::PlanOp& op) { return op.Is<Plan::MessageWork>(); });
}

PlanOptions PlanOptionsOf(const RunJob& job) {
  PlanOptions options = job.options;
  if (job.workers.count == 1) options.rank = job.workers.first;
  return options;
}

// Rings connect workers.
void LeaveServersOut(const RunJob& job, Plan* plan) {
  if (job.options.num_servers == 0) return;
  for (RingKey& ring : plan->rings) {
    if (!ring.ranks.empty()) continue;
    ring.ranks.resize(job.options.nranks);
    std::iota(ring.ranks.begin(), ring.ranks.end(), 0);
  }
}

// Whether the program is one for workers.
absl::Status CheckServerOps(const RunJob& job) {
  const auto op = absl::c_find_if(
      job.main_plan->ops, [](const Plan::PlanOp& one) { return one.Is<Plan::ServerWork>(); });
  const bool is_for_workers = op != job.main_plan->ops.end();
  if (is_for_workers == (job.inputs.server != nullptr)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      is_for_workers
          ? absl::StrCat(op->name, ": expected parameter servers and their program, found none")
          : "parameter servers: expected a program for workers, which pushes to servers");
}

// Adds to `holds_value` the persistable variables that the program writes.
absl::Status PrepareStartup(RunJob* job, NameSet* holds_value) {
  if (job->inputs.startup == nullptr || job->inputs.resume != nullptr) return absl::OkStatus();
  const Program& startup = *job->inputs.startup;
  PlanOptions options = PlanOptionsOf(*job);
  if (options.host_kernels != nullptr && IsOnTwoDevices(*job->inputs.main) &&
      !IsOnTwoDevices(startup)) {
    options.kernels = options.host_kernels;
    WEFT_ASSIGN_OR_RETURN(job->startup_plan, Plan::Build(startup, options));
    job->starts_on_host = job->startup_plan->rings.empty();
  }
  if (!job->starts_on_host) {
    WEFT_ASSIGN_OR_RETURN(job->startup_plan, Plan::Build(startup, PlanOptionsOf(*job)));
  }
  LeaveServersOut(*job, &*job->startup_plan);
  const Plan& plan = *job->startup_plan;
  WEFT_RETURN_IF_ERROR(CheckInitialized(plan, {}, {}));
  if (job->options.num_servers > 0) {
    WEFT_ASSIGN_OR_RETURN(std::vector<StartupPart> parts,
                          SplitStartup(startup, job->options.startup_part_bytes));
    if (!job->starts_on_host) options = PlanOptionsOf(*job);
    for (StartupPart& part : parts) {
      WEFT_ASSIGN_OR_RETURN(Plan of_part, Plan::Build(part.program, options));
      LeaveServersOut(*job, &of_part);
      job->startup_parts.push_back({std::move(of_part), std::move(part.done)});
    }
  }
  for (const Plan::Variable& variable : plan.variables) {
    if (variable.persistable && variable.is_written) holds_value->insert(variable.name);
  }
  return absl::OkStatus();
}

// Finds the state of the run, and compares it with the checkpoint with which the run begins.
absl::Status PrepareState(RunJob* job) {
  const Plan& plan = *job->main_plan;
  const std::vector<int> carried = FindCarriedValues(plan, job->feeder->variables());
  // In every run, so that checkpoints do not change how the plan is rewritten, and its last bits.
  job->accessed.insert(job->accessed.end(), carried.begin(), carried.end());
  const bool gives_state = job->inputs.on_checkpoint != nullptr || job->options.kept != nullptr;
  if (!gives_state && job->inputs.resume == nullptr) return absl::OkStatus();
  if (job->options.kept != nullptr && HasMessages(plan)) {
    return absl::FailedPreconditionError(
        "the run goes on without processes that are lost: expected one program for all ranks, "
        "found ranks that send to each other");
  }
  WEFT_ASSIGN_OR_RETURN(job->state, StateOf(plan, carried));
  if (job->inputs.resume == nullptr) return absl::OkStatus();
  return Annotate("checkpoint", CheckResume(*job->resume(), plan, job->state, job->world.size));
}

absl::Status PrepareFeedback(RunJob* job) {
  if (!job->options.feedback.has_value()) return absl::OkStatus();
  const Feedback& feedback = *job->options.feedback;
  const auto fail = [&](absl::string_view expected, const std::string& found) {
    return absl::InvalidArgumentError(
        absl::StrCat("feedback ", feedback.variable, ": expected ", expected, ", found ", found));
  };
  if (feedback.every < 1) return fail("1 or more steps", absl::StrCat(feedback.every));
  const int variable = job->main_plan->FindVariable(feedback.variable);
  if (!absl::c_linear_search(job->feeder->variables(), variable)) {
    return fail("a fed variable", "one that is not fed");
  }
  const TensorType& type = *job->main_plan->variables[variable].declared;  // as it is fed
  const bool is_real = type.dtype == DType::kFloat32 || type.dtype == DType::kFloat64;
  if (!is_real || NumElements(type.dims) != 1) {
    return fail("one element of fp32 or fp64", ToString(type));
  }
  job->feedback_variable = variable;
  return absl::OkStatus();
}

// Else a master weight would have the value of the startup program, and the first update would
// undo what the file says.
absl::Status FindMasters(RunJob* job, NameSet* holds_value) {
  const Program& main = *job->inputs.main;
  const std::map<std::string, Tensor>& params = *job->inputs.params;
  for (const ParamUpdate& update : FindUpdates(main)) {
    if (!update.master.valid()) continue;
    const std::string master(main.name(update.master));
    const Tensor* const param = job->FindParam(std::string(main.name(update.param)));
    if (param == nullptr || params.count(master) > 0) continue;
    Tensor value;
    value.Resize(DType::kFloat32, param->dims());
    WEFT_RETURN_IF_ERROR(
        ConvertFloats(std::string(main.name(update.param)), *param, master, &value));
    job->masters[master] = std::move(value);
    holds_value->insert(master);
  }
  return absl::OkStatus();
}

// An outer optimizer begins with the parameters (OuterOptimizer): with those of the file, and not
// with what the startup program has copied before.
absl::Status FindOuterParams(RunJob* job, NameSet* holds_value) {
  const Program& main = *job->inputs.main;
  WEFT_ASSIGN_OR_RETURN(const Setting setting, SettingOf(main));
  const bool has_outer = setting.averaging.has_value() && setting.averaging->outer.HasState();
  if (!has_outer || job->inputs.startup == nullptr) return absl::OkStatus();
  const Program& startup = *job->inputs.startup;
  for (const Op& op : BlockOps(startup, 0)) {
    const bool is_copy = AlgebraOf(op, FindOpSchema(op.type())) == Algebra::kCopy &&
                         op.input_args().size() == 1 && op.output_args().size() == 1;
    if (!is_copy) continue;
    const std::string from(startup.name(op.input_args()[0]));
    const std::string to(startup.name(op.output_args()[0]));
    const VarId state = main.block(0).FindVar(to);
    if (!state.valid() || main.var(state).is_parameter() || job->FindParam(to) != nullptr) continue;
    const auto master = job->masters.find(from);
    const Tensor* const value =
        master == job->masters.end() ? job->FindParam(from) : &master->second;
    if (value == nullptr) continue;
    job->masters[to] = *value;
    holds_value->insert(to);
  }
  return absl::OkStatus();
}

// Without a startup program, parameters must have all that ranks have parts of.
absl::Status FindShares(const RunJob& job, NameSet* holds_value) {
  const auto find = [&](const std::string& variable) -> absl::Status {
    if (holds_value->contains(variable)) return absl::OkStatus();
    holds_value->insert(variable);
    return job.shares.CheckHas(variable, job.shared_params,
                               job.inputs.startup == nullptr
                                   ? "the parameters, without a startup program,"
                                   : "the parameters and the startup program");
  };
  for (const auto& [variable, tensors] : job.shares.shares()) {
    WEFT_RETURN_IF_ERROR(find(variable));
  }
  for (const auto& [variable, names] : job.shares.common()) {
    WEFT_RETURN_IF_ERROR(find(variable));
  }
  return absl::OkStatus();
}

absl::Status PrepareMain(RunJob* job, NameSet holds_value) {
  WEFT_ASSIGN_OR_RETURN(job->main_plan, Plan::Build(*job->inputs.main, PlanOptionsOf(*job)));
  LeaveServersOut(*job, &*job->main_plan);
  const Plan& plan = *job->main_plan;
  WEFT_RETURN_IF_ERROR(CheckServerOps(*job));
  WEFT_RETURN_IF_ERROR(PrepareBuffers(job));
  job->main_may_draw = MayDraw(plan);
  job->groups = FindGroupVariables(*job->inputs.main);
  if (!job->options.allow_unsynchronized && job->inputs.server == nullptr) {
    WEFT_RETURN_IF_ERROR(CheckSynchronized(*job->inputs.main, job->options.nranks));
  }
  WEFT_ASSIGN_OR_RETURN(job->shares, SharedStates::Of(*job->inputs.main));
  if (job->inputs.resume != nullptr && !job->shares.empty()) {
    job->divided = *job->inputs.resume;
    WEFT_RETURN_IF_ERROR(
        Annotate("checkpoint", job->shares.DivideIn(job->world.size, &*job->divided)));
  }
  const Checkpoint* const resume = job->resume();
  if (resume != nullptr) {
    for (const auto& [name, tensor] : resume->shared) holds_value.insert(name);
    for (const auto& own : resume->own) {
      for (const auto& [name, tensor] : own) holds_value.insert(name);
    }
  }
  if (job->inputs.params != nullptr && resume == nullptr) {
    for (const auto& [name, tensor] : *job->inputs.params) {
      const TensorType type = {tensor.dtype(), tensor.dims()};
      if (job->shares.Replaces(name)) {
        WEFT_RETURN_IF_ERROR(job->shares.CheckParam(*job->inputs.main, name, type));
        job->shared_params.emplace(name, tensor);
        continue;
      }
      const Program& of = job->IsOfServers(name) ? *job->inputs.server : *job->inputs.main;
      WEFT_RETURN_IF_ERROR(CheckParam(of, name, type));
      holds_value.insert(name);
    }
    WEFT_RETURN_IF_ERROR(job->shares.AddMasters(*job->inputs.main, &job->shared_params));
    WEFT_RETURN_IF_ERROR(FindShares(*job, &holds_value));
    WEFT_RETURN_IF_ERROR(FindParamsOfBuffers(job, &holds_value));
    WEFT_RETURN_IF_ERROR(FindMasters(job, &holds_value));
    WEFT_RETURN_IF_ERROR(FindOuterParams(job, &holds_value));
  }
  WEFT_ASSIGN_OR_RETURN(job->feeder, Feeder::Create(plan, job->inputs.feeds, job->workers,
                                                    job->options.steps, job->options.begin_step));
  WEFT_RETURN_IF_ERROR(PrepareFeedback(job));
  WEFT_RETURN_IF_ERROR(CheckFeeds(*job->inputs.main, plan, job->inputs.feeds, job->workers,
                                  job->options.steps, job->options.begin_step));
  WEFT_RETURN_IF_ERROR(PrepareState(job));
  WEFT_RETURN_IF_ERROR(CheckInitialized(plan, holds_value, job->feeder->variables()));
  WEFT_ASSIGN_OR_RETURN(job->fetch, ResolveFetch(plan, job->options.fetch));
  for (int variable : job->fetch) job->fetch_names.push_back(plan.variables[variable].name);
  job->fetches_buffers = FetchesBuffers(*job);
  job->accessed.insert(job->accessed.end(), job->fetch.begin(), job->fetch.end());
  for (const std::vector<int>* variables : {&job->feeder->variables(), &plan.losses}) {
    job->accessed.insert(job->accessed.end(), variables->begin(), variables->end());
  }
  if (job->options.rewrites_plan) {
    // An activation that an op carries out would hide the NaN before it.
    const bool fuses_ops = !job->options.check_nan;
    RewritePlan(*job->options.kernels, {job->accessed, fuses_ops}, &*job->main_plan);
  }
  return absl::OkStatus();
}

// Of names and values.
std::string HashOf(const std::map<std::string, Tensor>& tensors) {
  uint64_t hash = 0;
  for (const auto& [name, tensor] : tensors) {
    hash = XXH3_64bits_withSeed(name.data(), name.size(), hash ^ StartHash(tensor));
  }
  return absl::StrFormat("%016x", hash);
}

std::string HashOf(const std::string& bytes) {
  return absl::StrFormat("%016x", XXH3_64bits(bytes.data(), bytes.size()));
}

// What all processes must agree on, besides the programs.
std::map<std::string, std::string> SettingsOf(const RunJob& job) {
  const RunOptions& options = job.options;
  std::map<std::string, std::string> settings = options.settings;
  if (job.inputs.resume != nullptr && options.kept != nullptr) {
    settings["the state"] = "of each rank";  // each process has those of its own
  } else if (job.inputs.resume != nullptr) {
    std::string& hash = settings["the hash of the checkpoint"];
    hash = HashOf(job.inputs.resume->shared);
    for (const auto& own : job.inputs.resume->own) {
      if (!own.empty()) hash += HashOf(own);
    }
  } else if (job.inputs.params != nullptr && !job.have_own_programs) {
    settings["the hash of the parameters"] = HashOf(*job.inputs.params);
  }
  const auto yes_or_no = [](bool yes) { return std::string(yes ? "yes" : "no"); };
  settings.merge(std::map<std::string, std::string>{
      {"ranks", absl::StrCat(options.nranks)},
      {"parameter servers", absl::StrCat(options.num_servers)},
      {"the program of the servers",
       job.inputs.server == nullptr ? "none" : HashOf(job.inputs.server->Serialize())},
      {"checking for NaN", yes_or_no(options.check_nan)},
      {"products in TF32", yes_or_no(options.tf32)},
      {"strict host synchronization", yes_or_no(options.strict_host_sync)},
      {"seed", absl::StrCat(options.seed)},
      {"steps", absl::StrCat(options.steps)},
      {"the first step", absl::StrCat(options.begin_step)},
      {"steps between checkpoints", absl::StrCat(options.checkpoint_every)},
      {"a variable that follows from results",
       options.feedback.has_value()
           ? absl::StrCat(options.feedback->variable, " every ", options.feedback->every, " steps")
           : "none"},
      {"writing checkpoints", yes_or_no(job.inputs.on_checkpoint != nullptr)},
      {"resuming", yes_or_no(job.inputs.resume != nullptr)},
      {"a startup program", yes_or_no(job.startup_plan.has_value())},
      {"fetched variables", absl::StrJoin(job.fetch_names, ", ")}});
  return settings;
}

// Whether ranks have programs of their own: they send messages, or keep different variables. Every
// process calls it.
absl::StatusOr<bool> HaveOwnPrograms(const RunJob& job) {
  const bool has_messages = HasMessages(*job.main_plan);
  if (job.options.link == nullptr) return has_messages;
  std::string names = has_messages ? "messages\n" : "\n";
  for (const Plan::Variable& variable : job.main_plan->variables) {
    if (variable.persistable) absl::StrAppend(&names, absl::CEscape(variable.name), "\n");
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> all, job.options.link->AllGather(names));
  return has_messages || absl::c_any_of(all, [&](const std::string& one) { return one != all[0]; });
}

// Compares what the processes are about to do, and sets the rings up.
absl::Status PrepareGroup(RunJob* job) {
  const RunOptions& options = job->options;
  WEFT_ASSIGN_OR_RETURN(job->have_own_programs, HaveOwnPrograms(*job));
  GroupOptions group = {job->world.size, options.warn_after_s, options.timeout_s, options.warn};
  if (options.link != nullptr) {
    RunFingerprint fingerprint;
    fingerprint.settings = SettingsOf(*job);
    if (job->startup_plan.has_value()) AddCalls(*job->startup_plan, &fingerprint);
    AddCalls(*job->main_plan, &fingerprint);
    group.link = options.link;
    WEFT_ASSIGN_OR_RETURN(group.rings, AgreeOnPlan(fingerprint, job->world, options.link));
    std::set<RingKey> tests;
    for (const RingKey& ring : group.rings) tests.insert(SelfTestRingOf(ring));
    group.rings.insert(group.rings.end(), tests.begin(), tests.end());
  }
  WEFT_ASSIGN_OR_RETURN(job->group, options.new_group(std::move(group)));
  return absl::OkStatus();
}

// Process 0 makes a checkpoint of the states of all ranks.
void PrepareStates(RunJob* job, int64_t end_step) {
  StateGate::Use use = [job, end_step](std::vector<RankState> ranks) -> absl::Status {
    Checkpoint checkpoint;
    checkpoint.end_step = end_step;
    checkpoint.seed = job->options.seed;
    checkpoint.num_servers = job->options.num_servers;
    checkpoint.buffers = job->buffers;
    MergeStates(std::move(ranks), &checkpoint);
    if (!job->shares.empty()) WEFT_RETURN_IF_ERROR(job->shares.JoinIn(&checkpoint));
    return job->inputs.on_checkpoint(std::move(checkpoint));
  };
  if (job->options.link != nullptr) {
    job->exchange = std::make_unique<StateExchange>(job->world, job->options.link, std::move(use));
    use = [job](std::vector<RankState> ranks) { return job->exchange->Exchange(std::move(ranks)); };
  }
  job->states = std::make_unique<StateGate>(job->world.count, std::move(use));
}

// Receives what other processes send.
void ListenToLink(RunJob* job) {
  JobLink* const link = job->options.link;
  if (job->world.process() == 0) {
    link->Listen(JobLink::Topic::kResult, [job](int process, const std::string& message) {
      absl::StatusOr<StepResult> result = ParseResult(message);
      const int rank = result.ok() ? result->rank : process * job->world.count;
      const int64_t step = result.ok() ? result->step : job->options.begin_step;
      const absl::Status theirs = result.ok() ? result->status : absl::OkStatus();
      const absl::Status status =
          result.ok() ? job->results->Post(*std::move(result)) : result.status();
      if (status.ok()) return;
      if (status != theirs) return job->failures->Report(step, rank, status);
      job->failures->ReportElsewhere(
          absl::AbortedError(absl::StrCat("rank ", rank, " failed: ", status.message())));
    });
  }
  link->OnFailure([job](const absl::Status& status) { job->failures->ReportElsewhere(status); });
}

void PrepareStartValues(RunJob* job) {
  if (job->workers.size == 1 || !job->HasWorkers() || !job->startup_plan.has_value()) return;
  if (job->have_own_programs) return;  // with different variables
  std::vector<StartValues::Variable> variables;
  for (const Plan::Variable& variable : job->main_plan->variables) {
    if (!variable.persistable || job->shares.shares().count(variable.name) > 0) continue;
    variables.push_back({variable.name, job->GroupOf(variable.name)});
  }
  job->start_values = std::make_unique<StartValues>(job->workers, job->options.link,
                                                    std::move(variables), job->options.warn);
}

absl::Status PrepareServers(RunJob* job) {
  const RunOptions& options = job->options;
  if (options.num_servers == 0) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(ServerLinks direct, LinkWithServers(job->world, options.nranks,
                                                            options.link, options.timeout_s));
  job->post = std::make_unique<ServerPost>(job->world, options.link, std::move(direct));
  job->servers = {options.nranks,       options.num_servers, {},          job->post.get(),
                  options.warn_after_s, options.timeout_s,   options.warn};
  WEFT_ASSIGN_OR_RETURN(job->servers.keys, FindServedKeys(*job->inputs.server));
  // Now rather than on each server.
  for (int server = 0; server < options.num_servers; ++server) {
    WEFT_RETURN_IF_ERROR(PartOfServer(*job->inputs.server, server, options.num_servers).status());
  }
  return absl::OkStatus();
}

absl::Status PrepareSharedState(RunJob* job) {
  const RunOptions& options = job->options;
  job->results = std::make_unique<ResultQueue>(options.nranks, job->fetch_names,
                                               job->inputs.on_result, options.begin_step);
  WEFT_RETURN_IF_ERROR(PrepareServers(job));
  WEFT_RETURN_IF_ERROR(PrepareGroup(job));
  const int64_t end_step = options.begin_step + options.steps;
  std::function<bool()> stops = options.stop_requested;
  if (RunControl* const control = options.control; control != nullptr) {
    stops = [control, asked = std::move(stops)] {
      return control->has_ended() || (asked && asked());
    };
  }
  job->steps = std::make_unique<StepGate>(options.begin_step, end_step, std::move(stops),
                                          options.link, options.on_stop_requested);
  if (options.feedback.has_value()) {
    job->feedback = std::make_unique<FeedbackGate>(*options.feedback, options.begin_step,
                                                   job->results.get(), options.link);
  }
  PrepareStates(job, end_step);
  PrepareStartValues(job);
  job->failures = std::make_unique<RunFailures>(job->group.get(), options.link, [job] {
    job->feeder->Stop();
    job->steps->Stop();
    job->states->Stop();
    if (job->exchange != nullptr) job->exchange->Stop();
    job->results->Stop();
    if (job->feedback != nullptr) job->feedback->Stop();
    if (job->options.control != nullptr) job->options.control->Stop();
    if (job->post != nullptr) job->post->Abort(absl::AbortedError("the run was aborted"));
  });
  if (options.link != nullptr) ListenToLink(job);
  return absl::OkStatus();
}

// The ranks of this process.
struct RanksHere {
  std::deque<RankRunner> workers;
  std::deque<ServerRank> servers;
};

void RunRanks(RunJob* job, RanksHere* ranks) {
  const World& world = job->world;
  std::vector<std::function<void()>> runs;
  for (int rank = world.first; rank < world.end(); ++rank) {
    if (rank < job->workers.size) {
      RankRunner* const worker = &ranks->workers.emplace_back(job, rank);
      runs.emplace_back([worker] { worker->Run(); });
    } else {
      ServerRank* const server = &ranks->servers.emplace_back(job, rank - job->workers.size);
      runs.emplace_back([server] { server->RunAll(); });
    }
  }
  std::vector<std::thread> threads;
  threads.reserve(world.count);  // nothing may throw while threads are running
  for (int rank = world.first; rank < world.end(); ++rank) {
    try {
      threads.emplace_back(runs[rank - world.first]);
    } catch (const std::exception& error) {  // system_error or bad_alloc
      job->failures->Report(RankRunner::kStartup, rank,
                            absl::ResourceExhaustedError(
                                absl::StrCat("no thread for rank ", rank, ": ", error.what())));
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
}

// The name under which the part of a rank comes to process 0.
std::string PartName(int rank, const std::string& variable) {
  return absl::StrCat("@part/", rank, "/", variable);
}

// The parts that ranks of this process have of a variable.
absl::Status AddParts(const RunJob& job, const std::string& variable, std::deque<RankRunner>* ranks,
                      std::map<std::string, Tensor>* parts) {
  for (int rank = job.world.first; rank < job.world.end(); ++rank) {
    const Value* value = (*ranks)[rank - job.world.first].scope()->Find(variable);
    if (value == nullptr || !value->tensor.allocated()) continue;
    WEFT_RETURN_IF_ERROR((*parts)[PartName(rank, variable)].CopyFrom(value->tensor));
  }
  return absl::OkStatus();
}

// Puts these together.
absl::Status JoinPartsOfRanks(const RunJob& job, std::map<std::string, Tensor>* persistables) {
  const auto find = [&](int rank, const std::string& name) -> const Tensor* {
    const bool is_share = job.shares.shares().count(name) > 0;
    const auto found = persistables->find(is_share ? PartName(rank, name) : name);
    return found == persistables->end() ? nullptr : &found->second;
  };
  std::map<std::string, Tensor> whole;
  WEFT_RETURN_IF_ERROR(job.shares.Join(job.world.size, find, &whole));
  for (const auto& [variable, tensors] : job.shares.shares()) {
    for (int rank = 0; rank < job.world.size; ++rank) persistables->erase(PartName(rank, variable));
  }
  for (auto& [name, tensor] : whole) (*persistables)[name] = std::move(tensor);
  return absl::OkStatus();
}

// Persistable variables whose values are those of ranks of this process. If ranks have programs of
// their own, all of its program: process 0 takes those of the first rank that has them.
absl::StatusOr<std::map<std::string, Tensor>> PersistablesHere(const RunJob& job,
                                                               std::deque<RankRunner>* ranks) {
  std::map<std::string, Tensor> persistables;
  if (!job.options.returns_persistables) return persistables;
  for (const Plan::Variable& variable : job.main_plan->variables) {
    if (!variable.persistable) continue;
    if (job.shares.shares().count(variable.name) > 0) {
      WEFT_RETURN_IF_ERROR(AddParts(job, variable.name, ranks, &persistables));
      continue;
    }
    const std::vector<int>* const group = job.GroupOf(variable.name);
    const int first = job.have_own_programs ? job.world.first : 0;
    const int rank = group == nullptr ? first : group->front();
    if (!job.world.Has(rank)) continue;
    const Value* value = (*ranks)[rank - job.world.first].scope()->Find(variable.name);
    if (value == nullptr || !value->tensor.allocated()) continue;
    Tensor* const persistable = &persistables[variable.name];
    if (value->tensor.memory() == HostMemory()) {
      *persistable = value->tensor;
    } else {  // that of the group, or of a device, which do not outlive the run
      WEFT_RETURN_IF_ERROR(persistable->CopyFrom(value->tensor));
    }
  }
  return persistables;
}

// Waits until all processes have done all steps. Brings to process 0 what it lacks.
absl::Status Conclude(RunJob* job, RunResult* result) {
  JobLink* const link = job->options.link;
  if (job->world.process() == 0) {
    const absl::Status status = job->results->WaitUntil(result->end_step);
    WEFT_RETURN_IF_ERROR(job->failures->Cause());
    WEFT_RETURN_IF_ERROR(status);
  }
  std::map<std::string, Tensor> own;
  if (job->world.process() > 0) own.swap(result->persistables);
  WEFT_ASSIGN_OR_RETURN(std::string message, TensorsMessage(own));
  own.clear();
  WEFT_ASSIGN_OR_RETURN(std::vector<std::string> texts, link->Gather(std::move(message)));
  for (std::string& text : texts) {
    WEFT_ASSIGN_OR_RETURN(auto tensors, ParseTensors(text));
    result->persistables.merge(tensors);
    text = std::string();  // gives its memory back
  }
  return absl::OkStatus();
}

absl::StatusOr<RunResult> RunHere(const RunInputs& inputs, const RunOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckOptions(inputs, options));
  RunJob job(inputs, options);
  NameSet holds_value;
  WEFT_RETURN_IF_ERROR(Annotate("startup program", PrepareStartup(&job, &holds_value)));
  WEFT_RETURN_IF_ERROR(PrepareMain(&job, std::move(holds_value)));
  WEFT_RETURN_IF_ERROR(PrepareSharedState(&job));

  RanksHere ranks;
  RunRanks(&job, &ranks);
  WEFT_RETURN_IF_ERROR(job.failures->Cause());

  RunResult result;
  result.end_step = job.steps->end();
  result.fetch = job.fetch_names;
  if (!ranks.workers.empty()) {
    result.memory = ranks.workers[0].memory();
    result.graph = ranks.workers[0].graph_use();
    result.rows = ranks.workers[0].row_traffic();
    result.server_traffic = ranks.workers[0].server_traffic();
  }
  WEFT_ASSIGN_OR_RETURN(result.persistables, PersistablesHere(job, &ranks.workers));
  for (ServerRank& server : ranks.servers) {
    if (options.returns_persistables) {
      WEFT_ASSIGN_OR_RETURN(auto held, server.Held());
      result.persistables.merge(held);
    }
    AddMemory(server.index(), server.memory(), &result.persistables);
  }
  if (options.link != nullptr) WEFT_RETURN_IF_ERROR(Conclude(&job, &result));
  if (options.returns_persistables && !job.shares.empty() && job.world.process() == 0) {
    WEFT_RETURN_IF_ERROR(JoinPartsOfRanks(job, &result.persistables));
  }
  if (inputs.server != nullptr && job.world.process() == 0) {
    result.server_memory = TakeMemory(options.num_servers, &result.persistables);
    if (options.returns_persistables) {
      WEFT_RETURN_IF_ERROR(JoinParts(options.num_servers, &result.persistables));
      WEFT_RETURN_IF_ERROR(FillServedBuffers(job, &result.persistables));
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<RunResult> RunProgram(const RunInputs& inputs, const RunOptions& options) {
  absl::StatusOr<RunResult> result = RunHere(inputs, options);
  // The others need not wait for this process. Those that have failed, or know, do not listen.
  if (!result.ok() && options.link != nullptr) {
    const World world = WorldOf(options.nranks + options.num_servers, options.link);
    options.link->Abort(world.first, result.status());
  }
  return result;
}

}  // namespace weft
