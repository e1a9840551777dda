#include "transpiler/transpile_plan.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/option_binder.h"
#include "base/spec_text.h"
#include "base/status_macros.h"
#include "ops/schema/device_ops.h"
#include "transpiler/context_flags.h"
#include "transpiler/passes/devices/hetero_partition.h"
#include "transpiler/passes/updates/param_options.h"

namespace weft {
namespace {

bool Reads(const Mode& mode, const std::string& flag) {
  return absl::c_any_of(mode.pipelines, [&](const ModePipeline& pipeline) {
    return absl::c_linear_search(FlagsOf(mode, pipeline), flag);
  });
}

// Of one rank, for which flags that a mode needs make no difference: a sum is a mean.
bool IsOfOneRank(const TranspileOptions& options) {
  const absl::StatusOr<Cluster> cluster = Cluster::Create(options.cluster, /*min_trainers=*/1);
  return cluster.ok() && cluster->nranks() == 1;
}

// Where ops are placed, modes that do not have pass hetero-partition read its flags, too:
// `of_placement` gets them.
absl::StatusOr<std::vector<Spec>> Expand(const Mode& mode, const TranspileOptions& options,
                                         std::vector<FlagValue>* of_placement) {
  std::map<std::string, std::string> flags = options.mode_flags;
  for (const char* flag : {"order", "staging"}) {
    const auto given = flags.find(flag);
    if (!options.placement.is_given() || given == flags.end() || Reads(mode, flag)) continue;
    of_placement->push_back(*given);
    flags.erase(given);
  }
  if (IsOfOneRank(options)) flags.insert(mode.required.begin(), mode.required.end());
  return ExpandMode(mode, options.dialect, flags, ContextFlagsGiven(options));
}

// The pass that places ops, after all others: the last one of `passes`, if it is that, with
// `placement`.
absl::StatusOr<std::unique_ptr<Pass>> TakePartition(const Placement& placement,
                                                    std::vector<FlagValue> flags,
                                                    std::vector<Spec>* passes) {
  const std::string name(HeteroPartition::kName);
  if (!passes->empty() && passes->back().name == name) {
    for (FlagValue& option : passes->back().options) flags.push_back(std::move(option));
    passes->pop_back();
  }
  HeteroPartition::Options options;
  OptionBinder bind;
  options.Bind(bind);
  WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("pass ", name), bind.Set(flags)));
  if (!placement.place.empty()) {
    if (!options.place.empty() && options.place != kOpDeviceAttr) {
      return absl::InvalidArgumentError(
          absl::StrCat("place: expected rules once, found some in pass ", name, " too"));
    }
    options.place = placement.place;
  }
  if (placement.device_memory.has_value() && options.device_memory != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("device_memory: expected one number, found another in pass ", name));
  }
  const std::tuple<const char*, absl::optional<int64_t>, int64_t*> numbers[] = {
      {"device_memory", placement.device_memory, &options.device_memory},
      {"batch", placement.batch, &options.batch},
      {"copy_bandwidth", placement.copy_bandwidth, &options.copy_bandwidth},
      {"accelerator_speed", placement.accelerator_speed, &options.accelerator_speed}};
  for (const auto& [option, value, field] : numbers) {
    if (value.value_or(1) < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(option, ": expected an integer >= 1, found ", *value));
    }
    *field = value.value_or(*field);
  }
  return std::make_unique<HeteroPartition>(std::move(options));
}

absl::StatusOr<TranspilePlan> Resolve(const TranspileOptions& options,
                                      const PassRegistry& registry) {
  if (options.mode.empty() == options.passes.empty()) {
    return absl::InvalidArgumentError("expected a mode or passes, and not both");
  }
  TranspilePlan plan;
  std::vector<FlagValue> of_placement;
  absl::StatusOr<std::vector<Spec>> passes;
  if (options.mode.empty()) {
    passes = ParseSpecs(options.passes);
    WEFT_RETURN_IF_ERROR(Annotate("pipeline", passes.status()));
  } else {
    WEFT_ASSIGN_OR_RETURN(plan.mode, FindMode(options.mode));
    passes = Expand(*plan.mode, options, &of_placement);
    WEFT_RETURN_IF_ERROR(passes.status());
  }
  const Placement& placement = options.placement;
  if (!placement.device_memory.has_value() &&
      (placement.batch || placement.copy_bandwidth || placement.accelerator_speed)) {
    return absl::InvalidArgumentError(
        "batch, copy_bandwidth, accelerator_speed: expected device_memory, which alone reads them");
  }
  std::unique_ptr<Pass> partition;
  if (placement.is_given()) {
    WEFT_ASSIGN_OR_RETURN(partition, TakePartition(placement, std::move(of_placement), &*passes));
  }
  WEFT_ASSIGN_OR_RETURN(plan.pipeline, Pipeline::FromSpecs(*passes, registry));
  if (partition != nullptr) plan.pipeline.Add(std::move(partition));
  const auto updated = absl::c_find_if(
      options.param_attrs, [](const auto& param) { return param.second.HasUpdateOptions(); });
  if (updated == options.param_attrs.end() ||
      plan.pipeline.HasTrait(PassTrait::kReadsUpdateOptions)) {
    return plan;
  }
  // They change updates before any mode of the weft dialect does its work.
  if (plan.mode != nullptr && !plan.is_copy() && options.dialect == Dialect::kWeft) {
    plan.pipeline.AddFirst(std::make_unique<ParamOptions>(ParamOptions::Options()));
    return plan;
  }
  // They say what a step computes, and are not to be overlooked.
  return absl::InvalidArgumentError(
      absl::StrCat("attributes of parameter ", updated->first,
                   ": expected no lr_ratio and no weight_decay, which only pass ",
                   ParamOptions::kName, " reads; run it first, or use a mode of dialect weft"));
}

// Paddle refuses one trainer, unless the mode is for trainers that drive several devices.
int MinTrainers(const TranspilePlan& plan, const TranspileOptions& options) {
  if (options.dialect == Dialect::kWeft) return 1;
  const bool one_is_enough = plan.mode != nullptr
                                 ? plan.mode->trainers == Mode::Trainers::kOneOrMoreWithDevices
                                 : options.cluster.devices.has_value();
  return one_is_enough ? 1 : 2;
}

absl::Status CheckGroupsAreSupported(const PassContext& context) {
  const Target& target = context.target;
  if (target.groups.empty()) return absl::OkStatus();
  for (const auto& [param, attrs] : target.param_attrs) {
    if (!attrs.group.has_value() || context.setting.distributed_params.count(param) == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("parameter ", param, ", group '",
                                                   attrs.group->name,
                                                   "': expected a replicated parameter, found a "
                                                   "distributed one"));
  }
  if (target.dialect == Dialect::kWeft) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("group '", target.groups[0].name,
                   "' of ranks: Paddle's transpiler has no rings over some of the ranks; use "
                   "dialect weft"));
}

// With endpoints, programs are those of one rank. Parameters of groups to which it does not belong
// are its own.
void LeaveOtherGroups(PassContext* context) {
  Target& target = context->target;
  if (!target.cluster.has_endpoints()) return;
  if (!target.groups.empty()) context->setting.rank = target.cluster.rank();
  for (auto& [param, attrs] : target.param_attrs) {
    if (!attrs.group.has_value()) continue;
    if (absl::c_binary_search(attrs.group->ranks, target.cluster.rank())) continue;
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

}  // namespace

absl::StatusOr<TranspilePlan> PlanOf(const TranspileOptions& options,
                                     const PassRegistry& registry) {
  WEFT_ASSIGN_OR_RETURN(TranspilePlan plan, Resolve(options, registry));
  WEFT_RETURN_IF_ERROR(CheckServed(plan, options));
  WEFT_ASSIGN_OR_RETURN(const PassContext context, ContextOf(plan, options, Setting()));
  WEFT_RETURN_IF_ERROR(plan.pipeline.ClaimsOf(context).status());
  return plan;
}

absl::Status CheckMode(const TranspileOptions& options) {
  if (options.mode.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Mode* const mode, FindMode(options.mode));
  std::vector<FlagValue> of_placement;
  return Expand(*mode, options, &of_placement).status();
}

absl::Status CheckServed(const TranspilePlan& plan, const TranspileOptions& options) {
  const auto served = absl::c_find_if(
      options.param_attrs, [](const auto& param) { return param.second.parameter_server; });
  if (served == options.param_attrs.end() || plan.pipeline.HasTrait(PassTrait::kMakesServer)) {
    return absl::OkStatus();
  }
  const bool are_left = plan.mode != nullptr ? plan.mode->leaves_served
                                             : plan.pipeline.HasTrait(PassTrait::kLeavesServed);
  if (are_left) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "parameter ", served->first,
      ", parameter_server: expected mode parameter_server, or pass parameter-server, found ",
      options.mode.empty() ? absl::StrCat("passes ", options.passes)
                           : absl::StrCat("mode ", options.mode)));
}

absl::StatusOr<PassContext> ContextOf(const TranspilePlan& plan, const TranspileOptions& options,
                                      const Setting& file) {
  PassContext context;
  context.setting = file;
  // A program gets the order that it lacks when it is written.
  context.setting.ordered_by_data = false;
  context.setting.distributed_params.insert(options.distributed_params.begin(),
                                            options.distributed_params.end());
  Target& target = context.target;
  target.dialect = options.dialect;
  WEFT_ASSIGN_OR_RETURN(target.cluster,
                        Cluster::Create(options.cluster, MinTrainers(plan, options)));
  WEFT_ASSIGN_OR_RETURN(target.device_kind, TargetDeviceOf(options));
  target.collective_time = options.times.collective;
  target.param_attrs = options.param_attrs;
  WEFT_RETURN_IF_ERROR(ResolveGroups(target.cluster, &target.param_attrs));
  target.groups = GroupsOf(target.param_attrs);
  WEFT_RETURN_IF_ERROR(CheckGroupsAreSupported(context));
  LeaveOtherGroups(&context);
  for (const auto& [param, attrs] : options.param_attrs) {
    if (!attrs.is_replicated()) context.setting.distributed_params.insert(param);
  }
  return context;
}

}  // namespace weft
