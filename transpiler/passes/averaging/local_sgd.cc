#include "transpiler/passes/averaging/local_sgd.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/core/updates.h"
#include "ops/schema/tensor_type.h"
#include "transpiler/passes/averaging/averaging_plan.h"
#include "transpiler/passes/averaging/averaging_writer.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/support/op_queries.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"
#include "transpiler/passes/support/step_condition.h"

namespace weft {
namespace {

// `fragment`: from 1 on; 0: there are none.
void Explain(const AveragingPlan& plan, const LocalSgd::Options& options, int fragment,
             const PassContext& context) {
  if (context.sink.remarks == nullptr) return;
  std::string every = options.schedule.IsEveryStep() ? "every step" : ToString(options.schedule);
  if (fragment > 0) absl::StrAppend(&every, ", fragment ", fragment);
  for (size_t i = 0; i < plan.averaged.size(); ++i) {
    const bool is_outer = plan.outer.count(i) > 0;
    for (const std::string& name : plan.averaged[i].names) {
      context.sink.Explain(LocalSgd::kName, name, is_outer ? "synchronized" : "averaged",
                           "ranks train separately in between",
                           {{"when", every}, {"ring", absl::StrCat(i % options.nrings)}});
    }
  }
  for (const AveragingPlan::Cast& cast : plan.casts) {
    context.sink.Explain(LocalSgd::kName, cast.param, "cast", "its master weight is averaged",
                         {{"from", cast.master}});
  }
  for (const AveragingPlan::Reset& reset : plan.resets) {
    context.sink.Explain(LocalSgd::kName, reset.state, "reset",
                         "as the startup program initializes it");
  }
}

// What a rank gives to collectives: in an average step, and where gradients are reduced instead.
void ExplainBytes(const Program& main, const AveragingPlan& plan, const AveragingSchedule& schedule,
                  const PassContext& context) {
  if (context.sink.remarks == nullptr) return;
  int64_t bytes = 0, bytes_of_gradients = 0;
  for (size_t i = 0; i < plan.averaged.size(); ++i) {
    const FusedTensors& tensors = plan.averaged[i];
    const auto outer = plan.outer.find(i);
    const DType sent = outer == plan.outer.end() ? tensors.dtype : outer->second.sent;
    for (const Dims& dims : tensors.dims) {
      bytes += NumElements(dims) * static_cast<int64_t>(SizeOf(sent));
    }
  }
  std::set<Symbol> params;
  for (const ParamUpdate& update : FindUpdates(main)) {
    const absl::optional<TensorType> type = DeclaredType(main, update.param);
    if (!type.has_value() || !params.insert(update.param).second) continue;
    if (context.setting.distributed_params.count(std::string(main.name(update.param))) > 0) {
      continue;
    }
    bytes_of_gradients += NumElements(type->dims) * static_cast<int64_t>(SizeOf(type->dtype));
  }
  const auto per_step = [&](int64_t steps) { return absl::StrCat((bytes + steps - 1) / steps); };
  std::vector<std::pair<std::string, std::string>> details = {
      {"when", ToString(schedule)},
      {"bytes_a_round", absl::StrCat(bytes)},
      {"bytes_a_step", per_step(schedule.period)}};
  if (schedule.HasGroups()) {
    details.emplace_back("bytes_a_step_over_all_ranks", per_step(schedule.PeriodOfAll()));
  }
  details.emplace_back("bytes_a_step_of_grad_allreduce", absl::StrCat(bytes_of_gradients));
  context.sink.Explain(LocalSgd::kName, "communication", "bytes that a rank gives to collectives",
                       "mode grad_allreduce gives all gradients to them in every step",
                       std::move(details));
}

absl::Status CheckSchedule(const AveragingSchedule& schedule) {
  const std::pair<const char*, bool> not_of_groups[] = {{"begin_step", schedule.begin_step > 1},
                                                        {"first_average", schedule.first_step > 1},
                                                        {"fragments", schedule.fragments > 1},
                                                        {"delay", schedule.delay > 0}};
  for (const auto& [option, is_given] : not_of_groups) {
    if (!is_given || !schedule.HasGroups()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("option group_size: groups average all parameters every k_steps, from the "
                     "first step on: leave out option ",
                     option, ", or option group_size and option rounds"));
  }
  const std::string problem = ProblemOf(schedule);
  if (problem.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("option ", problem));
}

DType DTypeOf(AveragingSchedule::Sent sent) {
  switch (sent) {
    case AveragingSchedule::Sent::kBf16:
      return DType::kBFloat16;
    case AveragingSchedule::Sent::kFp16:
      return DType::kFloat16;
    case AveragingSchedule::Sent::kNative:
      break;
  }
  return DType::kFloat32;
}

absl::StatusOr<double> ParseNumber(absl::string_view text) {
  double number = 0;
  if (absl::SimpleAtod(text, &number)) return number;
  return absl::InvalidArgumentError("no number");
}

}  // namespace

void LocalSgd::Options::Bind(OptionBinder& bind) {
  bind.Int("k_steps", &schedule.period, "averaging period, in steps", /*min=*/1);
  bind.Int("begin_step", &schedule.begin_step,
           "before this step, every step averages; steps count from 1", /*min=*/1);
  bind.Int("first_average", &schedule.first_step, "before this step, no step averages", /*min=*/1);
  BindGroupSize(bind, &schedule.group_size);
  bind.Int("rounds", &schedule.rounds,
           "with group_size: all ranks average every rounds * k_steps steps",
           /*min=*/1);
  BindRings(bind, &nrings);
  bind.Bool("statistics", &statistics, "reduce running statistics over the ranks too");
  bind.Choice("state", &state,
              "optimizer state where parameters are averaged: each rank keeps its own, the ranks "
              "average it, or it is set to its initial value",
              {{"local", OptimizerState::kLocal},
               {"average", OptimizerState::kAverage},
               {"reset", OptimizerState::kReset}});
  bind.Parsed("outer", &schedule.outer, ToString(schedule.outer),
              "the outer optimizer, which moves parameters by the mean change of the ranks",
              kOuterOptimizers, ParseOuterOptimizer);
  bind.Int("fragments", &schedule.fragments,
           "parts of the parameters, which are synchronized in turn within k_steps", /*min=*/1);
  bind.Int("delay", &schedule.delay, "steps between sending the outer gradients and applying them",
           /*min=*/0);
  bind.Parsed("mix", &schedule.mix, absl::StrCat(schedule.mix),
              "weight of a rank's own parameters in the result of a synchronization",
              "a number from 0 to 1", ParseNumber);
  bind.Choice("comm_dtype", &schedule.sent,
              "the element type that is sent; native: as it is; fp32: grad-reduce casts narrower "
              "gradients, local-sgd casts nothing",
              {{"native", AveragingSchedule::Sent::kNative},
               {"fp32", AveragingSchedule::Sent::kNative},
               {"fp16", AveragingSchedule::Sent::kFp16},
               {"bf16", AveragingSchedule::Sent::kBf16}});
}

Contract LocalSgd::contract() const {
  // Nothing sums the divided gradients.
  return Contract()
      .ProvidesOnce(kParametersAveraged)
      .ConflictsWith(kGradientsReduced)
      .ConflictsWith(kLossGradientScaled);
}

Claims LocalSgd::claims(const PassContext& context) const { return Claims::Of(options_.schedule); }

absl::StatusOr<bool> LocalSgd::Run(const PassContext& context, ProgramPair& programs) const {
  const Program& main = *programs.main;
  const AveragingSchedule& schedule = options_.schedule;
  WEFT_RETURN_IF_ERROR(CheckSchedule(schedule));
  WEFT_RETURN_IF_ERROR(RefuseCompressedGradients(main));
  WEFT_ASSIGN_OR_RETURN(const AveragingPlan plan,
                        PlanAveraging(programs, context,
                                      {options_.state, options_.statistics, schedule.outer,
                                       /*has_delay=*/schedule.delay > 0, DTypeOf(schedule.sent)}));
  if (!schedule.IsEveryStep() && programs.startup == nullptr) {
    return absl::FailedPreconditionError(
        "counting steps needs the startup program, which sets the counter to 0; give it, or use "
        "k_steps 1");
  }
  ProgramEdits edits(programs);
  AddOuterStates(plan, &edits);
  const absl::optional<int> nranks = context.target.cluster.nranks();
  AveragingPlace place;
  place.nrings = options_.nrings;
  place.outer = schedule.outer;
  place.mix = schedule.mix;
  if (schedule.HasGroups()) {
    if (options_.state == OptimizerState::kReset) {
      return absl::FailedPreconditionError(
          "option group_size: expected option state=local or average, found option state=reset");
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<RankGroup> groups,
                          EqualGroups(context, schedule.group_size));
    const GroupConditions conditions = WriteGroupConditions(schedule, &edits);
    AveragingPlan in_groups = plan;
    in_groups.outer.clear();
    AveragingPlace of_groups = place;
    of_groups.groups = groups;
    of_groups.block = AppendBranch(/*parent=*/0, conditions.groups, VariablesOf(in_groups),
                                   "local_sgd_scope_groups", &edits);
    WriteAveraging(in_groups, of_groups, /*nranks=*/absl::nullopt, &edits);
    place.block =
        AppendBranch(/*parent=*/0, conditions.all, VariablesOf(plan), "local_sgd_scope", &edits);
    WriteAveraging(plan, place, nranks, &edits);
    Explain(plan, options_, /*fragment=*/0, context);
  } else if (schedule.fragments > 1 || schedule.delay > 0) {
    std::vector<AveragingPlan> fragments = {plan};
    if (schedule.fragments > 1) {
      WEFT_ASSIGN_OR_RETURN(fragments, CutIntoFragments(plan, schedule.fragments));
    }
    StepCounter counter("local_sgd", /*before=*/OpId(), &edits);
    const std::string remainder = counter.Remainder(schedule.period);
    for (int i = 1; i <= schedule.fragments; ++i) {
      const AveragingPlan& fragment = fragments[i - 1];
      const std::string suffix = absl::StrCat("_", i);
      const int phase = schedule.PhaseOf(i);
      place.block =
          AppendBranch(/*parent=*/0, counter.IsDue(remainder, phase, suffix), VariablesOf(fragment),
                       absl::StrCat("local_sgd_scope", suffix), &edits);
      WriteAveraging(fragment, place, nranks, &edits);
      Explain(fragment, options_, schedule.fragments > 1 ? i : 0, context);
      if (schedule.delay == 0) continue;
      const std::string of_launch = absl::StrCat("_launch", suffix);
      const int launch_phase = (phase - schedule.delay + schedule.period) % schedule.period;
      place.block = AppendBranch(
          /*parent=*/0, counter.IsDue(remainder, launch_phase, of_launch),
          VariablesOfGradients(fragment), absl::StrCat("local_sgd_scope", of_launch), &edits);
      LaunchGradients(fragment, place, nranks, &edits);
    }
  } else {
    if (!schedule.IsEveryStep()) {
      const std::string condition = WriteAveragingCondition(schedule, &edits);
      place.block =
          AppendBranch(/*parent=*/0, condition, VariablesOf(plan), "local_sgd_scope", &edits);
    }
    WriteAveraging(plan, place, nranks, &edits);
    Explain(plan, options_, /*fragment=*/0, context);
  }
  ExplainBytes(main, plan, schedule, context);
  WEFT_RETURN_IF_ERROR(ExplainLocalGradients(kName, main, context));
  return edits.Commit();
}

}  // namespace weft
