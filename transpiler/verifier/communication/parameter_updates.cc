#include "transpiler/verifier/communication/parameter_updates.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/updates.h"
#include "ops/schema/communication_ops.h"
#include "proto/all_ops.h"
#include "proto/untranslated_op.h"

namespace weft {
namespace {

using Placement = RankValue::Placement;

constexpr char kDiffersAtStart[] =
    "but the parameter itself differs between ranks when training begins: the startup program does "
    "not broadcast it";

// Whether the op is a collective on the ring of other ranks.
bool IsOfOthers(const Op& op, const std::vector<int>& group) {
  if (FindCollectiveOp(op) == nullptr) return false;
  const absl::StatusOr<std::vector<int>> ranks = GroupRanksOf(op);
  return ranks.ok() && *ranks != group;
}

// "op 5 (c_allreduce_avg) VERB over ranks 0, 1".
std::string WithRanks(const Op& op, absl::string_view verb) {
  return absl::StrCat(op.DebugName(), " ", verb, " over ", GroupText(*GroupRanksOf(op)));
}

// Whether the gradient covers the samples of all ranks.
absl::optional<UpdateProblem> ProblemOfPlacement(const Program& program, const RankValue& grad,
                                                 const RankValue& param,
                                                 const std::vector<int>& group) {
  if (grad.placement == Placement::kLocal) {
    const OpId nonlinear_op = grad.first_nonlinear_op;
    if (nonlinear_op.valid() && IsOfOthers(program.op(nonlinear_op), group)) {
      return UpdateProblem{
          "W310", absl::StrCat(
                      "which is not reduced over ", GroupText(group), ": ",
                      WithRanks(program.op(nonlinear_op), "reduces it, or what it is made from,"))};
    }
    const std::string nonlinear =
        grad.first_nonlinear_op.valid()
            ? absl::StrCat(", and ", program.op(grad.first_nonlinear_op).DebugName(),
                           " is not linear in it",
                           UntranslatedOpAdvice(program.op(grad.first_nonlinear_op).type()))
            : "";
    return UpdateProblem{
        "W310", absl::StrCat("which differs between ranks because it is never reduced", nonlinear)};
  }
  if (grad.placement == Placement::kShard && param.placement != Placement::kShard) {
    return UpdateProblem{"W311", "which is sharded, although the parameter is whole"};
  }
  if (grad.IsOfSomeRanks()) {
    return UpdateProblem{"W311", grad.rank >= 0
                                     ? absl::StrCat("the gradient of rank ", grad.rank,
                                                    " alone; expected the mean over all ranks")
                                     : absl::StrCat("which is not the mean over all ranks, but ",
                                                    ToString(grad.placement))};
  }
  return absl::nullopt;
}

// Whether a gradient that is equal on all ranks is their mean.
absl::optional<UpdateProblem> ProblemOfMean(const Program& program, const RankValue& grad,
                                            const std::vector<int>& group) {
  if (grad.first_nonlinear_op.valid() && IsOfOthers(program.op(grad.first_nonlinear_op), group)) {
    return UpdateProblem{"W313",
                         absl::StrCat("which is computed from what ",
                                      WithRanks(program.op(grad.first_nonlinear_op), "exchanges"))};
  }
  if (grad.first_nonlinear_op.valid()) {
    return UpdateProblem{
        "W313",
        absl::StrCat("which is reduced after ", program.op(grad.first_nonlinear_op).DebugName(),
                     ", which is not linear in it; expected the mean over all "
                     "ranks before that",
                     UntranslatedOpAdvice(program.op(grad.first_nonlinear_op).type()))};
  }
  if (grad.is_zero) return absl::nullopt;
  if (grad.unscaled_sums > 0 && grad.reductions > 1) {
    return UpdateProblem{
        "W312", absl::StrCat("which is summed over ranks ", grad.unscaled_sums,
                             " times more often than it is divided by their number: it passes "
                             "through ",
                             grad.reductions, " collectives")};
  }
  if (grad.unscaled_sums > 0) {
    return UpdateProblem{
        "W312",
        "which is summed over ranks but never divided by their number: N ranks make the "
        "update N times too large"};
  }
  if (grad.unscaled_sums < 0) {
    return UpdateProblem{
        "W314", absl::StrCat("which is divided by the number of ranks ", -grad.unscaled_sums,
                             " times more often than it is summed over them")};
  }
  if (grad.unscaled_in.valid()) {
    return UpdateProblem{"W313", absl::StrCat("which is divided by the number of ranks after ",
                                              program.op(grad.unscaled_in).DebugName(),
                                              ", which is not linear in it; expected that before")};
  }
  if (grad.is_mixed) {
    return UpdateProblem{
        "W315",
        "which adds terms that are divided by the number of ranks, or reduced, to terms "
        "that are not"};
  }
  return absl::nullopt;
}

}  // namespace

UpdateChecker::UpdateChecker(const ProgramFacts& facts, std::set<std::string> distributed_params,
                             const absl::flat_hash_map<std::string, RankValue>* start,
                             ProgramRef ref, std::vector<int> group)
    : facts_(facts),
      program_(facts.program()),
      parameters_(program_),
      distributed_params_(std::move(distributed_params)),
      start_(start),
      ref_(ref),
      group_(std::move(group)) {}

void UpdateChecker::OnUpdate(const Op& op, const RankValue& param, const RankValue& grad) {
  size_t i = 0;
  if (!updates_.empty() && updates_.back().op == op.id()) i = updates_.back().index + 1;
  const Symbol name = op.Input("Param")[i];
  const VarId var = parameters_.Of(program_.block(op.block()).Resolve(name));
  updates_.push_back({op.id(), i, name, op.Input("Grad")[i], var, param, grad});
}

void UpdateChecker::Check(const RankValues& values, OptionFlows* mended, Findings* findings) const {
  Context context{values, mended, Reporter(ref_, findings), absl::nullopt};
  for (const Update& update : updates_) {
    if (distributed_params_.count(std::string(NameOf(update))) > 0) continue;
    CheckUpdate(update, &context);
  }
  // Parameters that differ explain these.
  if (!context.starts_differ) {
    for (const auto& [problem, update] : context.after_sums) Report(problem, *update, &context);
  }
  CheckManualUpdates(&context);
}

void UpdateChecker::CheckUpdate(const Update& update, Context* context) const {
  const RankValue& grad = update.grad_value;
  const VarId var = update.var;
  const bool is_averaged = var.valid() && context->values.AtEnd(var).averaged_across_ranks;
  if (grad.placement == Placement::kLocal && is_averaged) {
    return CheckAveragedParameter(update, context);
  }
  const absl::optional<UpdateProblem> placement =
      ProblemOfPlacement(program_, grad, update.param_value, group_);
  if (placement.has_value()) return Report(*placement, update, context);
  if (!grad.IsEqualOnRanks()) return;
  const absl::optional<UpdateProblem> mean = ProblemOfMean(program_, grad, group_);
  if (mean.has_value()) {
    // Sums of gradients by half-precision copies of parameters that differ are no sums by samples.
    const OpId nonlinear_op = grad.first_nonlinear_op;
    const bool is_sum =
        nonlinear_op.valid() && FindCollectiveOp(program_.op(nonlinear_op)) != nullptr;
    if (!is_sum) return Report(*mean, update, context);
    if (DiffersAtStart(NameOf(update))) return ReportRankLocalParameter(update, context);
    context->after_sums.emplace_back(*mean, &update);
    return;
  }
  if (grad.is_zero) return;
  if (grad.reductions > 1) {
    Report({"W316",
            absl::StrCat("which passes through ", grad.reductions, " collectives; one is enough")},
           update, context);
  }
  if (grad.placement == Placement::kReplicated && var.valid() &&
      context->values.AtStart(var).placement == Placement::kLocal && !is_averaged) {
    ReportRankLocalParameter(update, context);
  }
}

// LocalSGD: each rank updates by its local gradient until parameters are averaged.
void UpdateChecker::CheckAveragedParameter(const Update& update, Context* context) const {
  if (DiffersAtStart(NameOf(update))) {
    Report({"W317", kDiffersAtStart}, update, context);
  }
  if (update.grad_value.unscaled_sums != 0 && !update.grad_value.is_zero) {
    Report({"W314",
            "which is divided by the number of ranks, although each rank updates by its local "
            "gradient"},
           update, context);
  }
}

// The gradient is equal on all ranks, but the parameter is not.
void UpdateChecker::ReportRankLocalParameter(const Update& update, Context* context) const {
  RankDivergence::Cause cause;
  if (DiffersAtStart(NameOf(update))) {
    context->starts_differ = true;
  } else {
    if (!context->divergence.has_value()) context->divergence.emplace(program_, context->values);
    cause = context->divergence->Of(update.var);
  }
  std::string why = kDiffersAtStart;
  if (cause.op.valid()) {
    why = absl::StrCat("but the parameter itself begins to differ between ranks in a step: ",
                       program_.op(cause.op).DebugName());
    if (!cause.variable.valid()) {
      absl::StrAppend(&why, " makes it so");
    } else {
      absl::StrAppend(&why, cause.is_condition ? " runs its block on condition " : " reads ",
                      program_.name(cause.variable), ", which differs between ranks");
    }
  }
  Report({"W317", why, cause.op}, update, context);
}

// Parameters that other ops than optimizers update.
void UpdateChecker::CheckManualUpdates(Context* context) const {
  std::vector<VarId> vars;
  for (const Var& var : AllVars(program_)) {
    if (var.is_parameter() && context->values.IsWritten(var.id())) vars.push_back(var.id());
  }
  if (vars.empty()) return;
  std::vector<bool> is_checked(program_.var_id_limit(), false);
  const auto exclude = [&](VarId var) {
    if (var.valid()) is_checked[var.value()] = true;
  };
  for (const Update& update : updates_) exclude(update.var);
  // Mostly, optimizers update all of them.
  if (absl::c_all_of(vars, [&](VarId var) { return is_checked[var.value()]; })) return;
  // Optimizer states follow the parameter.
  for (const ParamUpdate& update : facts_.Get(FindUpdates)) {
    for (Symbol state : update.states) exclude(program_.block(0).FindVar(state));
  }
  // Running statistics are marked as parameters, but may differ between ranks.
  for (Symbol statistic : facts_.Get(FindRunningStatistics)) {
    exclude(program_.block(0).FindVar(statistic));
  }
  for (VarId id : vars) {
    if (is_checked[id.value()]) continue;
    const Var var = program_.var(id);
    const RankValue& end = context->values.AtEnd(id);
    if (end.placement == Placement::kReplicated || end.averaged_across_ranks ||
        distributed_params_.count(std::string(var.name())) > 0) {
      continue;
    }
    if (end.IsOfSomeRanks()) {
      context->reporter.Add(
          "W311", end.first_nonlinear_op, var.name(),
          absl::StrCat("parameter ", var.name(), " is ",
                       end.rank >= 0 ? absl::StrCat("the value of rank ", end.rank, " alone")
                                     : ToString(end.placement),
                       " after a step: expected an update by the mean over all ranks"));
      continue;
    }
    context->reporter.Add(
        "W310", end.first_nonlinear_op, var.name(),
        absl::StrCat("parameter ", var.name(), " is ", ToString(end.placement),
                     " after a step: its gradient is never reduced over the ranks",
                     AdviceForStatistic(id, context)));
  }
}

// A statistic of the batch, such as a running mean, that is declared as a parameter.
std::string UpdateChecker::AdviceForStatistic(VarId var, Context* context) {
  const BatchFlow* const flow =
      context->mended == nullptr ? nullptr : context->mended->WithStatistics();
  if (flow == nullptr || !flow->AtEnd(var).relation.IsSame()) return "";
  return "; transpile option:statistics true reduces it";
}

void UpdateChecker::Report(const UpdateProblem& problem, const Update& update,
                           Context* context) const {
  const absl::string_view grad = program_.name(update.grad), param = program_.name(update.param);
  const absl::string_view of = NameOf(update);
  context->reporter.Add(
      problem.rule, update.op, grad,
      absl::StrCat(program_.op(update.op).DebugName(), " updates ", param,
                   of == param ? "" : absl::StrCat(" of parameter ", of), " by ", grad, ", ",
                   problem.why),
      problem.other.valid() ? problem.other : update.grad_value.first_nonlinear_op);
}

absl::string_view UpdateChecker::NameOf(const Update& update) const {
  return update.var.valid() ? program_.var(update.var).name() : program_.name(update.param);
}

bool UpdateChecker::DiffersAtStart(absl::string_view param) const {
  if (start_ == nullptr) return false;
  const auto start = start_->find(param);
  return start != start_->end() && !start->second.IsEqualOnRanks();
}

}  // namespace weft
