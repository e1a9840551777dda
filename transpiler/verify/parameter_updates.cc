#include "transpiler/verify/parameter_updates.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/analysis/updates.h"

namespace weft {
namespace {

using Placement = RankValue::Placement;

constexpr char kDiffersAtStart[] =
    "but the parameter itself differs between ranks when training begins: the startup program does "
    "not broadcast it";

// What is wrong with a gradient that a parameter is updated by.
struct Problem {
  const char* rule;
  std::string why;
};

// Which ranks' samples the gradient is of.
absl::optional<Problem> ProblemOfPlace(const Program& program, const RankValue& grad,
                                       const RankValue& param) {
  if (grad.placement == Placement::kLocal) {
    const std::string nonlinear =
        grad.first_nonlinear_op.valid()
            ? absl::StrCat(", and ", program.op(grad.first_nonlinear_op).DebugName(),
                           " is not linear in it")
            : "";
    return Problem{
        "W310", absl::StrCat("which differs between ranks because it is never reduced", nonlinear)};
  }
  if (grad.placement == Placement::kShard && param.placement != Placement::kShard) {
    return Problem{"W311", "which is sharded, although the parameter is whole"};
  }
  if (grad.placement == Placement::kFromSomeRanks || grad.placement == Placement::kGathered) {
    return Problem{"W311", grad.rank >= 0
                               ? absl::StrCat("the gradient of rank ", grad.rank,
                                              " alone; expected the mean over all ranks")
                               : absl::StrCat("which is not the mean over all ranks, but ",
                                              ToString(grad.placement))};
  }
  return absl::nullopt;
}

// Whether a gradient that is equal on all ranks is their mean.
absl::optional<Problem> ProblemOfMean(const Program& program, const RankValue& grad) {
  if (grad.first_nonlinear_op.valid()) {
    return Problem{"W313", absl::StrCat("which is reduced after ",
                                        program.op(grad.first_nonlinear_op).DebugName(),
                                        ", which is not linear in it; expected the mean over all "
                                        "ranks before that")};
  }
  if (grad.is_zero) return absl::nullopt;
  if (grad.unscaled_sums > 0 && grad.reductions > 1) {
    return Problem{"W312",
                   absl::StrCat("which is summed over ranks ", grad.unscaled_sums,
                                " times more often than it is divided by their number: it passes "
                                "through ",
                                grad.reductions, " collectives")};
  }
  if (grad.unscaled_sums > 0) {
    return Problem{"W312",
                   "which is summed over ranks but never divided by their number: N ranks make the "
                   "update N times too large"};
  }
  if (grad.unscaled_sums < 0) {
    return Problem{"W314",
                   absl::StrCat("which is divided by the number of ranks ", -grad.unscaled_sums,
                                " times more often than it is summed over them")};
  }
  if (grad.unscaled_in.valid()) {
    return Problem{"W313", absl::StrCat("which is divided by the number of ranks after ",
                                        program.op(grad.unscaled_in).DebugName(),
                                        ", which is not linear in it; expected that before")};
  }
  if (grad.is_mixed) {
    return Problem{"W315",
                   "which adds terms that are divided by the number of ranks, or reduced, to terms "
                   "that are not"};
  }
  return absl::nullopt;
}

}  // namespace

UpdateChecker::UpdateChecker(const Program& program, std::set<std::string> distributed_params,
                             const absl::flat_hash_map<std::string, RankValue>* start,
                             ProgramRef ref)
    : program_(program),
      distributed_params_(std::move(distributed_params)),
      start_(start),
      ref_(ref) {}

Symbol UpdateChecker::ParamOf(const Update& update) const {
  return program_.op(update.op).Input("Param")[update.index];
}

Symbol UpdateChecker::GradOf(const Update& update) const {
  return program_.op(update.op).Input("Grad")[update.index];
}

VarId UpdateChecker::VarOf(const Update& update) const {
  return program_.block(program_.op(update.op).block()).Resolve(ParamOf(update));
}

void UpdateChecker::OnUpdate(const Op& op, const RankValue& param, const RankValue& grad) {
  uint32_t index = 0;
  if (!updates_.empty() && updates_.back().op == op.id()) index = updates_.back().index + 1;
  updates_.push_back({op.id(), index, param, grad});
}

void UpdateChecker::Check(const RankValues& values, Findings* findings) const {
  Context context{values, Reporter(ref_, findings), absl::nullopt};
  for (const Update& update : updates_) {
    if (distributed_params_.count(std::string(program_.name(ParamOf(update)))) > 0) continue;
    CheckUpdate(update, &context);
  }
  CheckManualUpdates(&context);
}

void UpdateChecker::CheckUpdate(const Update& update, Context* context) const {
  const RankValue& grad = update.grad;
  const VarId var = VarOf(update);
  const bool is_averaged = var.valid() && context->values.AtEnd(var).averaged_across_ranks;
  if (grad.placement == Placement::kLocal && is_averaged)
    return CheckAveragedParameter(update, context);
  const absl::optional<Problem> place = ProblemOfPlace(program_, grad, update.param);
  if (place.has_value()) return Report(place->rule, update, place->why, context);
  if (!grad.IsEqualOnRanks()) return;
  const absl::optional<Problem> mean = ProblemOfMean(program_, grad);
  if (mean.has_value()) return Report(mean->rule, update, mean->why, context);
  if (grad.is_zero) return;
  if (grad.reductions > 1) {
    Report("W316", update,
           absl::StrCat("which passes through ", grad.reductions, " collectives; one is enough"),
           context);
  }
  if (grad.placement == Placement::kReplicated && var.valid() &&
      context->values.AtStart(var).placement == Placement::kLocal && !is_averaged) {
    ReportRankLocalParameter(update, context);
  }
}

// LocalSGD: each rank updates by its own gradient until parameters are averaged.
void UpdateChecker::CheckAveragedParameter(const Update& update, Context* context) const {
  if (DiffersAtStart(program_.name(ParamOf(update)))) {
    Report("W317", update, kDiffersAtStart, context);
  }
  if (update.grad.unscaled_sums != 0 && !update.grad.is_zero) {
    Report("W314", update,
           "which is divided by the number of ranks, although each rank updates by its own",
           context);
  }
}

// The gradient is equal on all ranks, but the parameter that it is added to is not.
void UpdateChecker::ReportRankLocalParameter(const Update& update, Context* context) const {
  RankDivergence::Cause cause;
  if (!DiffersAtStart(program_.name(ParamOf(update)))) {
    if (!context->divergence.has_value()) context->divergence.emplace(program_, context->values);
    cause = context->divergence->Of(VarOf(update));
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
  const Op op = program_.op(update.op);
  const absl::string_view grad = program_.name(GradOf(update));
  context->reporter.Add("W317", update.op, grad,
                        absl::StrCat(op.DebugName(), " updates ", program_.name(ParamOf(update)),
                                     " by ", grad, ", ", why),
                        cause.op);
}

// Parameters that other ops than optimizers write.
void UpdateChecker::CheckManualUpdates(Context* context) const {
  std::set<VarId> checked;
  for (const Update& update : updates_) checked.insert(VarOf(update));
  // The states of an optimizer follow the parameter.
  for (const ParamUpdate& update : FindUpdates(program_)) {
    for (Symbol state : update.states) checked.insert(program_.block(0).FindVar(state));
  }
  // Running statistics are marked as parameters, too, and may differ between ranks.
  for (Symbol statistic : FindRunningStatistics(program_)) {
    checked.insert(program_.block(0).FindVar(statistic));
  }
  for (VarId id : program_.block(0).vars()) {
    const Var var = program_.var(id);
    if (!var.is_parameter() || !context->values.IsWritten(id) || checked.count(id) > 0) continue;
    const RankValue& end = context->values.AtEnd(id);
    if (end.IsEqualOnRanks() || end.averaged_across_ranks ||
        distributed_params_.count(std::string(var.name())) > 0) {
      continue;
    }
    context->reporter.Add("W310", end.first_nonlinear_op, var.name(),
                          absl::StrCat("parameter ", var.name(), " is ", ToString(end.placement),
                                       " after a step: what it is updated by is never reduced"));
  }
}

void UpdateChecker::Report(const char* rule, const Update& update, absl::string_view why,
                           Context* context) const {
  const absl::string_view grad = program_.name(GradOf(update));
  context->reporter.Add(rule, update.op, grad,
                        absl::StrCat(program_.op(update.op).DebugName(), " updates ",
                                     program_.name(ParamOf(update)), " by ", grad, ", ", why),
                        update.grad.first_nonlinear_op);
}

bool UpdateChecker::DiffersAtStart(absl::string_view param) const {
  if (start_ == nullptr) return false;
  const auto start = start_->find(param);
  return start != start_->end() && !start->second.IsEqualOnRanks();
}

}  // namespace weft
