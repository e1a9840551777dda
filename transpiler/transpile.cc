#include "transpiler/transpile.h"

#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/spec_text.h"
#include "base/status_macros.h"
#include "ops/analysis/devices/op_times.h"
#include "ops/analysis/training/gradients.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/analysis/values/layout_guess.h"
#include "ops/analysis/values/sum_losses.h"
#include "ops/schema/device_ops.h"
#include "proto/formats/pir/importer.h"
#include "proto/setting.h"
#include "transpiler/changed_original.h"
#include "transpiler/claim_verifier.h"
#include "transpiler/context_flags.h"
#include "transpiler/modes.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/passes/compat/grad_reduce.h"
#include "transpiler/passes/devices/hetero_partition.h"
#include "transpiler/passes/gradients/gradient_buckets.h"
#include "transpiler/passes/servers/parameter_server.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/updates/param_options.h"
#include "transpiler/verifier/structure/structure.h"

namespace weft {
namespace {

// Pass hetero-partition, last: that of the mode, if it has one.
Spec& HeteroPartitionOf(std::vector<Spec>* passes) {
  const std::string name(HeteroPartition::kName);
  if (passes->empty() || passes->back().name != name) passes->push_back({name, {}});
  return passes->back();
}

bool Reads(const Mode& mode, const std::string& flag) {
  return absl::c_any_of(mode.pipelines, [&](const ModePipeline& pipeline) {
    return absl::c_linear_search(FlagsOf(mode, pipeline), flag);
  });
}

// Where place or device_memory is given, modes that do not have pass hetero-partition read its
// flags, too.
absl::StatusOr<std::vector<Spec>> ExpandModeOf(const TranspileOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const Mode* const mode, FindMode(options.mode));
  const bool places = !options.place.empty() || options.device_memory.has_value();
  std::map<std::string, std::string> flags = options.mode_flags;
  std::vector<std::pair<std::string, std::string>> of_place;
  for (const char* flag : {"order", "staging"}) {
    const auto given = flags.find(flag);
    if (!places || given == flags.end() || Reads(*mode, flag)) continue;
    of_place.push_back(*given);
    flags.erase(given);
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<Spec> passes,
                        ExpandMode(*mode, options.dialect, flags, ContextFlagsGiven(options)));
  if (of_place.empty()) return passes;
  Spec& pass = HeteroPartitionOf(&passes);
  pass.options.insert(pass.options.end(), of_place.begin(), of_place.end());
  return passes;
}

// Places ops after all other passes.
absl::Status AddPlace(const std::string& place, std::vector<Spec>* passes) {
  Spec& pass = HeteroPartitionOf(passes);
  for (auto& [option, value] : pass.options) {
    if (option != "place") continue;
    if (value != kOpDeviceAttr) {
      return absl::InvalidArgumentError(
          absl::StrCat("place: expected rules once, found some in pass ", pass.name, " too"));
    }
    value = place;
    return absl::OkStatus();
  }
  pass.options.emplace_back("place", place);
  return absl::OkStatus();
}

absl::Status AddDeviceMemory(const TranspileOptions& options, std::vector<Spec>* passes) {
  if (!options.device_memory.has_value()) {
    if (options.device_flags.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        options.device_flags.begin()->first, ": expected device_memory, which alone reads it"));
  }
  if (*options.device_memory <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("device_memory: expected an integer >= 1, found ", *options.device_memory));
  }
  Spec& pass = HeteroPartitionOf(passes);
  const bool is_given = absl::c_any_of(
      pass.options, [](const auto& option) { return option.first == "device_memory"; });
  if (is_given) {
    return absl::InvalidArgumentError(
        absl::StrCat("device_memory: expected one number, found another in pass ", pass.name));
  }
  pass.options.emplace_back("device_memory", absl::StrCat(*options.device_memory));
  pass.options.insert(pass.options.end(), options.device_flags.begin(), options.device_flags.end());
  return absl::OkStatus();
}

bool HavePass(const std::vector<Spec>& passes, absl::string_view name) {
  return absl::c_any_of(passes, [name](const Spec& pass) { return pass.name == name; });
}

// Options of parameters change updates before any mode of the weft dialect does its work.
void AddParamOptions(const TranspileOptions& options, std::vector<Spec>* passes) {
  const bool have_options = absl::c_any_of(
      options.param_attrs, [](const auto& param) { return param.second.HasUpdateOptions(); });
  if (!have_options || options.dialect != Dialect::kWeft || passes->empty()) return;
  if (HavePass(*passes, ParamOptions::kName)) return;
  Spec pass;
  pass.name = std::string(ParamOptions::kName);
  passes->insert(passes->begin(), std::move(pass));
}

absl::StatusOr<std::vector<Spec>> PassesOf(const TranspileOptions& options) {
  if (options.mode.empty() == options.passes.empty()) {
    return absl::InvalidArgumentError("expected a mode or passes, and not both");
  }
  std::vector<Spec> passes;
  if (!options.mode.empty()) {
    WEFT_ASSIGN_OR_RETURN(passes, ExpandModeOf(options));
    AddParamOptions(options, &passes);
  } else {
    absl::StatusOr<std::vector<Spec>> given = ParseSpecs(options.passes);
    WEFT_RETURN_IF_ERROR(Annotate("pipeline", given.status()));
    passes = *std::move(given);
  }
  if (!options.place.empty()) WEFT_RETURN_IF_ERROR(AddPlace(options.place, &passes));
  WEFT_RETURN_IF_ERROR(AddDeviceMemory(options, &passes));
  return passes;
}

// Paddle refuses one trainer, unless the mode is for trainers that drive several devices.
absl::StatusOr<int> MinTrainers(const TranspileOptions& options) {
  if (options.dialect == Dialect::kWeft) return 1;
  bool one_is_enough = options.cluster.devices.has_value();
  if (!options.mode.empty()) {
    WEFT_ASSIGN_OR_RETURN(const Mode* const mode, FindMode(options.mode));
    one_is_enough = mode->trainers == Mode::Trainers::kOneOrMoreWithDevices;
  }
  return one_is_enough ? 1 : 2;
}

absl::StatusOr<Cluster> ResolveCluster(const TranspileOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const int min_trainers, MinTrainers(options));
  return Cluster::Create(options.cluster, min_trainers);
}

absl::Status CheckGroupsAreSupported(const PassContext& context) {
  const std::vector<RankGroup> groups = GroupsOf(context.target.param_attrs);
  if (groups.empty()) return absl::OkStatus();
  for (const auto& [param, attrs] : context.target.param_attrs) {
    if (!attrs.group.has_value() || context.setting.distributed_params.count(param) == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("parameter ", param, ", group '",
                                                   attrs.group->name,
                                                   "': expected a replicated parameter, found a "
                                                   "distributed one"));
  }
  if (context.target.dialect == Dialect::kWeft) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("group '", groups[0].name,
                   "' of ranks: Paddle's transpiler has no rings over some of the ranks; use "
                   "dialect weft"));
}

// With endpoints, programs are those of one rank. Parameters of groups to which it does not belong
// are its own.
void LeaveOtherGroups(PassContext* context) {
  if (!context->target.cluster.has_endpoints()) return;
  if (!context->target.groups.empty()) context->setting.rank = context->target.cluster.rank();
  for (auto& [param, attrs] : context->target.param_attrs) {
    if (!attrs.group.has_value()) continue;
    if (absl::c_binary_search(attrs.group->ranks, context->target.cluster.rank())) continue;
    attrs.group.reset();
    context->setting.distributed_params.insert(param);
  }
}

absl::StatusOr<TargetDevice> TargetDeviceOf(const TranspileOptions& options) {
  const TargetDevice kind = options.device_kind.value_or(TargetDevice::kCuda);
  const bool is_of_paddle = kind == TargetDevice::kXpu || kind == TargetDevice::kCustom;
  if (!is_of_paddle || options.dialect == Dialect::kPaddle) return kind;
  return absl::InvalidArgumentError(
      "the weft dialect writes for device kinds cuda and cpu; others are available in the paddle "
      "dialect");
}

// `file`: the setting of the main program.
absl::StatusOr<PassContext> ContextOf(const TranspileOptions& options, const Setting& file,
                                      TranspileResult* result) {
  PassContext context;
  context.setting = file;
  // A program gets the order that it lacks when it is written.
  context.setting.ordered_by_data = false;
  context.target.dialect = options.dialect;
  WEFT_ASSIGN_OR_RETURN(context.target.cluster, ResolveCluster(options));
  WEFT_ASSIGN_OR_RETURN(context.target.device_kind, TargetDeviceOf(options));
  context.setting.distributed_params.insert(options.distributed_params.begin(),
                                            options.distributed_params.end());
  context.target.collective_time = options.times.collective;
  context.target.param_attrs = options.param_attrs;
  WEFT_RETURN_IF_ERROR(ResolveGroups(context.target.cluster, &context.target.param_attrs));
  WEFT_RETURN_IF_ERROR(CheckGroupsAreSupported(context));
  context.target.groups = GroupsOf(context.target.param_attrs);
  LeaveOtherGroups(&context);
  for (const auto& [param, attrs] : options.param_attrs) {
    if (!attrs.is_replicated()) context.setting.distributed_params.insert(param);
  }
  if (options.explain) context.sink.remarks = &result->remarks;
  context.sink.messages = &result->messages;
  context.sink.server = &result->server;
  return context;
}

// Paddle divides whatever losses are.
SumLosses SumLossesOf(const Program& main, const PassContext& context) {
  if (context.target.dialect == Dialect::kPaddle) return {};
  BatchFlowOptions options;
  options.feeds = context.setting.feeds;
  options.extent = BatchFlowOptions::Extent::kToLosses;
  return FindSumLosses(main, BatchFlow::Of(main, options));
}

// lr_ratio and weight_decay say what a step computes: they are not to be overlooked.
absl::Status CheckUpdateOptionsAreRead(const TranspileOptions& options, const Pipeline& pipeline) {
  if (pipeline.Has(PassTrait::kReadsUpdateOptions)) return absl::OkStatus();
  for (const auto& [param, attrs] : options.param_attrs) {
    if (!attrs.HasUpdateOptions()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("attributes of parameter ", param,
                     ": expected no lr_ratio and no weight_decay, which only pass ",
                     ParamOptions::kName, " reads; run it first, or use a mode of dialect weft"));
  }
  return absl::OkStatus();
}

absl::Status VerifyInput(const ProgramPair& programs) {
  WEFT_RETURN_IF_ERROR(VerifyStructure(*programs.main));
  if (programs.startup == nullptr) return absl::OkStatus();
  return VerifyStructure(*programs.startup, {/*rank=*/0, /*is_startup=*/true});
}

absl::Status CheckTimes(const StepTimes& times, const Program& main) {
  const size_t num_ops = main.block(0).ops().size();
  if (times.op_seconds.empty() || times.op_seconds.size() == num_ops) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected the times of ", num_ops,
                                                 " ops of the root block, found ",
                                                 times.op_seconds.size()));
}

// Only a ProgramDesc can be what Paddle's transpiler writes. Other programs would get its mistakes,
// and nothing to be equal to.
absl::Status CheckDialect(const Program& main, const TranspileOptions& options) {
  if (options.dialect == Dialect::kWeft || main.origin() == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(
      "the paddle dialect writes what Paddle's transpiler writes, which reads ProgramDesc only; "
      "found a program in Paddle 3's own format (PIR): use dialect weft");
}

// Such programs are of Paddle 3, and so are both of a job.
absl::Status CheckFormats(const ProgramPair& programs, const TranspileOptions& options) {
  if (programs.main->origin() == nullptr) return absl::OkStatus();
  if (options.paddle_version == 2) {
    return absl::InvalidArgumentError(
        "paddle_version 2: found a program in Paddle 3's own format (PIR), which Paddle 2 does not "
        "read");
  }
  if (programs.startup == nullptr || programs.startup->origin() != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the main program is in Paddle 3's own format (PIR), and the startup program in the old one "
      "(ProgramDesc): Paddle runs them in different modes; expected the startup program of the "
      "same export, a .json file");
}

absl::Status CheckWrites(const ProgramPair& programs, const Pipeline& pipeline) {
  if (pipeline.passes().empty()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(pir::CheckWritesAreKnown(*programs.main));
  return programs.startup == nullptr ? absl::OkStatus()
                                     : pir::CheckWritesAreKnown(*programs.startup);
}

// Checks options that name parts of the program, and finds how it is fed and which losses are sums.
absl::Status CheckOptionsWith(const Program& main, const TranspileOptions& options,
                              PassContext* context) {
  context->target.paddle_version = options.paddle_version.value_or(PaddleVersionOf(main.version()));
  WEFT_RETURN_IF_ERROR(CheckTimes(options.times, main));
  WEFT_RETURN_IF_ERROR(CheckParamAttrs(options.param_attrs, main));
  FeedLayouts feeds = options.feeds;
  feeds.insert(context->setting.feeds.begin(), context->setting.feeds.end());
  WEFT_ASSIGN_OR_RETURN(context->setting.feeds, FeedLayoutsOf(main, feeds));
  context->target.forecast.sum_losses = SumLossesOf(main, *context);
  return absl::OkStatus();
}

// From measured times of ops or from estimates. None if gradients cannot be found, which the pass
// that reads them reports. Gradients keep their names in later passes; ops do not keep their
// positions.
ReadyTimes ReadyTimesOf(const Program& main, const Setting& setting,
                        const std::vector<double>& measured) {
  const auto analysis = AnalyzeGradients(main, setting.distributed_params);
  if (!analysis.ok()) return {};
  return FindReadyTimes(main, *analysis, measured.empty() ? EstimateOpTimes(main) : measured);
}

// Options, completed with what the file says of the run. Mode none reduces no gradients, even with
// `place`: only the verifier needs to know.
TranspileOptions WithSettingOfFile(const TranspileOptions& options, const Program& main,
                                   const Setting& file, std::vector<Message>* messages) {
  TranspileOptions complete = options;
  const auto note = [messages](std::string text) {
    messages->push_back({Severity::kNote, Message::Topic::kResult, "", std::move(text)});
  };
  if (!main.setting().empty()) {
    note(absl::StrCat("the setting of the file counts where options say nothing else: ",
                      main.setting()));
  }
  complete.feeds.insert(file.feeds.begin(), file.feeds.end());
  if (options.mode == "none") return complete;
  for (const std::string& name : file.distributed_params) {
    if (!complete.distributed_params.insert(name).second || !main.setting().empty()) continue;
    note(absl::StrCat("parameter ", name,
                      " is not replicated: the file says is_distributed, which counts as "
                      "option:distributed_params"));
  }
  if (file.nranks.has_value() && options.cluster.endpoints.empty()) {
    absl::optional<int>& nranks = complete.cluster.nranks;
    if (!nranks.has_value()) nranks = file.nranks;
  }
  return complete;
}

// A program that was rewritten for some number of ranks, or for one of them, is for these.
absl::Status CheckRanks(const Setting& file, const Cluster& cluster) {
  if (file.rank.has_value() && cluster.has_endpoints() && *file.rank != cluster.rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the rank: expected ", *file.rank,
                     ", whose program this is (setting of the file), found ", cluster.rank()));
  }
  if (!file.nranks.has_value() || !cluster.nranks().has_value() ||
      file.nranks == cluster.nranks()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the number of ranks: expected ", *file.nranks,
      ", for which the program was rewritten (setting of the file), found ", *cluster.nranks()));
}

// With a job: the programs of its next rank.
absl::StatusOr<TranspileResult> TranspileRank(const TranspileOptions& given, ProgramPair& programs,
                                              const PassRegistry& registry, JobPrograms* job) {
  TranspileResult result;
  // A copy keeps what it cannot read.
  const bool is_copy = given.mode == "none" && given.place.empty() && !given.device_memory;
  absl::StatusOr<Setting> read = SettingOf(*programs.main);
  if (!read.ok() && !is_copy) return read.status();
  const Setting file = read.ok() ? *std::move(read) : Setting();
  const TranspileOptions options =
      is_copy ? given : WithSettingOfFile(given, *programs.main, file, &result.messages);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Spec> passes, PassesOf(options));
  WEFT_ASSIGN_OR_RETURN(const Pipeline pipeline, Pipeline::FromSpecs(passes, registry));
  WEFT_RETURN_IF_ERROR(CheckUpdateOptionsAreRead(options, pipeline));
  WEFT_RETURN_IF_ERROR(CheckServed(options));
  WEFT_RETURN_IF_ERROR(CheckDialect(*programs.main, options));
  WEFT_RETURN_IF_ERROR(CheckFormats(programs, options));
  WEFT_RETURN_IF_ERROR(CheckWrites(programs, pipeline));
  WEFT_ASSIGN_OR_RETURN(PassContext context, ContextOf(options, file, &result));
  WEFT_RETURN_IF_ERROR(CheckRanks(file, context.target.cluster));
  const bool verifies = options.verification != Verification::kNever;
  // Everything else relies on the structure.
  if (verifies) WEFT_RETURN_IF_ERROR(VerifyInput(programs));
  // Beside the losses: both only read the programs.
  std::future<absl::StatusOr<Properties>> properties;
  if (verifies || pipeline.AsksForProperties()) {
    properties = std::async(std::launch::async | std::launch::deferred,
                            [&programs] { return DetectProperties(programs); });
  }
  WEFT_RETURN_IF_ERROR(CheckOptionsWith(*programs.main, options, &context));
  if (pipeline.Has(PassTrait::kReadsOpTimes)) {
    context.target.forecast.gradient_ready =
        ReadyTimesOf(*programs.main, context.setting, options.times.op_seconds);
  }
  context.target.forecast = pipeline.Foresee(programs, context);
  WEFT_ASSIGN_OR_RETURN(result.claims, pipeline.ClaimsOf(context));
  result.setting = ClaimedSetting(result.claims, context);
  // Of a program in which no loss is a sum, both are the same. (The paddle dialect looks for none.)
  const bool is_mean = result.setting.reduction == Setting::Reduction::kMean;
  if (is_mean && !context.target.forecast.sum_losses.any())
    result.setting.reduction = file.reduction;

  PipelineOptions run;
  run.verification = options.verification;
  run.observer = options.observer;
  const bool is_said = !programs.main->setting().empty();
  const bool carries_setting = options.dialect == Dialect::kWeft && !pipeline.passes().empty() &&
                               (is_said || result.claims.Communicate());
  run.on_result = [&](const ProgramPair& made) {
    if (carries_setting) made.main->set_setting(ToJson(result.setting));
    if (options.on_result) options.on_result(made);
  };
  if (properties.valid()) {
    WEFT_ASSIGN_OR_RETURN(run.initial_properties, properties.get());
  }
  if (verifies) {
    absl::optional<ChangedOriginal> changed = ApplyChanges(pipeline, context, programs);
    if (changed.has_value()) {
      context.sink.Note(absl::StrCat(
          "updates are changed on purpose: the result is compared with what option:passes '",
          changed->passes, "' makes of the original, as weft verify option:original can"));
    }
    run.verifier = ClaimVerifier(result.claims, context, run.initial_properties, programs,
                                 changed.has_value() ? changed->pair() : ProgramPair(), job);
  }
  WEFT_ASSIGN_OR_RETURN(result.passes, pipeline.Run(context, programs, run));
  return result;
}

}  // namespace

absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs,
                                          const PassRegistry& registry) {
  return TranspileRank(options, programs, registry, /*job=*/nullptr);
}

absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs) {
  return Transpile(options, programs, BuiltinPasses());
}

absl::StatusOr<std::vector<TranspileResult>> TranspileAllRanks(const TranspileOptions& options,
                                                               absl::Span<ProgramPair> ranks,
                                                               const PassRegistry& registry) {
  const ClusterSpec& cluster = options.cluster;
  if (ranks.empty() || cluster.endpoints.size() != ranks.size()) {
    return absl::InvalidArgumentError(absl::StrCat("expected an endpoint of each rank, found ",
                                                   cluster.endpoints.size(), " for ", ranks.size(),
                                                   " ranks"));
  }
  if (cluster.rank.has_value() || cluster.current_endpoint.has_value()) {
    return absl::InvalidArgumentError(
        "expected neither rank nor current_endpoint, as all ranks are asked for");
  }
  std::vector<TranspileResult> results;
  JobPrograms job;
  job.num_ranks = ranks.size();
  for (ProgramPair& programs : ranks) {
    const std::string rank = absl::StrCat("rank ", results.size());
    TranspileOptions of_rank = options;
    of_rank.cluster.rank = static_cast<int>(results.size());
    absl::StatusOr<TranspileResult> result = TranspileRank(of_rank, programs, registry, &job);
    const bool is_of_all = job.made.size() == ranks.size();
    WEFT_RETURN_IF_ERROR(Annotate(is_of_all ? "ranks together" : rank, result.status()));
    if (result->server.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(rank,
                       ": found parameter servers: expected passes that make none, as all "
                       "workers run one program"));
    }
    results.push_back(*std::move(result));
  }
  return results;
}

absl::StatusOr<Pipeline> PipelineOf(const TranspileOptions& options, const PassRegistry& registry) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Spec> passes, PassesOf(options));
  return Pipeline::FromSpecs(passes, registry);
}

absl::Status CheckOptions(const TranspileOptions& options, const PassRegistry& registry) {
  TranspileResult result;
  WEFT_ASSIGN_OR_RETURN(const std::vector<Spec> passes, PassesOf(options));
  WEFT_ASSIGN_OR_RETURN(const Pipeline pipeline, Pipeline::FromSpecs(passes, registry));
  WEFT_RETURN_IF_ERROR(CheckUpdateOptionsAreRead(options, pipeline));
  WEFT_RETURN_IF_ERROR(CheckServed(options));
  WEFT_ASSIGN_OR_RETURN(const PassContext context, ContextOf(options, Setting(), &result));
  return pipeline.ClaimsOf(context).status();
}

absl::Status CheckServed(const TranspileOptions& options) {
  const auto served = absl::c_find_if(
      options.param_attrs, [](const auto& param) { return param.second.parameter_server; });
  if (served == options.param_attrs.end()) return absl::OkStatus();
  std::string found = absl::StrCat("mode ", options.mode);
  if (options.mode.empty()) {
    absl::StatusOr<std::vector<Spec>> passes = ParseSpecs(options.passes);
    WEFT_RETURN_IF_ERROR(Annotate("pipeline", passes.status()));
    // MindSpore's reducer leaves out what its own servers hold.
    const bool moves_or_skips = absl::c_any_of(*passes, [](const Spec& pass) {
      return pass.name == ParameterServer::kName || pass.name == GradReduce::kName;
    });
    if (moves_or_skips) return absl::OkStatus();
    found = absl::StrCat("passes ", options.passes);
  } else if (options.mode == "parameter_server" || options.mode == "mindspore_reducer") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "parameter ", served->first, ", parameter_server: expected mode parameter_server, or pass ",
      ParameterServer::kName, ", found ", found));
}

absl::Status CheckMode(const TranspileOptions& options) {
  return options.mode.empty() ? absl::OkStatus() : ExpandModeOf(options).status();
}

}  // namespace weft
