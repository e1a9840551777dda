#include "transpiler/verifier/communication/parameter_updates.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/training/gradient_names.h"
#include "ops/analysis/training/synchronized.h"
#include "ops/analysis/values/rank_divergence.h"
#include "ops/schema/batch_rules.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/row_sums.h"
#include "proto/all_ops.h"
#include "proto/untranslated_op.h"
#include "transpiler/verifier/communication/updated_parameters.h"

namespace weft {
namespace {

using Placement = RankValue::Placement;

struct UpdateProblem {
  const char* rule;
  std::string why;      // "op 5 (sgd) updates w by w@GRAD, WHY"
  OpId other = OpId();  // the op that it conflicts with, if not the first nonlinear op
  bool is_of_start = false;
};

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

// Nothing is known of unregistered ops.
std::string Nonlinear(const Op& op) {
  if (FindOpSchema(op.type()) == nullptr) return " is unregistered and may not be linear in it";
  const absl::string_view why = WhyUnrelated(op);
  return absl::StrCat(" is not linear in it", why.empty() ? "" : " ", why);
}

// To be appended to a message on such an op.
std::string Advice(const Op& op) {
  if (FindOpSchema(op.type()) != nullptr) return std::string();
  return absl::StrCat("; if ", op.type(), " is linear, pass option:assume '", op.type(),
                      ": linear'", UntranslatedOpAdvice(op.type()));
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
    if (grad.drawn_by.valid()) {
      return UpdateProblem{
          "W310",
          absl::StrCat("which differs between ranks because ",
                       program.op(grad.drawn_by).DebugName(),
                       " draws other numbers on each; expected equal draws: give the op a seed, or "
                       "broadcast what it draws"),
          grad.drawn_by};
    }
    const std::string nonlinear =
        grad.first_nonlinear_op.valid()
            ? absl::StrCat(", and ", program.op(grad.first_nonlinear_op).DebugName(),
                           Nonlinear(program.op(grad.first_nonlinear_op)),
                           Advice(program.op(grad.first_nonlinear_op)))
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
                     ", which", Nonlinear(program.op(grad.first_nonlinear_op)),
                     "; expected the mean over all ranks before that",
                     Advice(program.op(grad.first_nonlinear_op)))};
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
    return UpdateProblem{
        "W313", absl::StrCat("which is divided by the number of ranks after ",
                             program.op(grad.unscaled_in).DebugName(), ", which",
                             Nonlinear(program.op(grad.unscaled_in)), "; expected that before",
                             Advice(program.op(grad.unscaled_in)))};
  }
  if (grad.is_mixed) {
    return UpdateProblem{
        "W315",
        "which adds terms that are divided by the number of ranks, or reduced, to terms "
        "that are not"};
  }
  return absl::nullopt;
}

class UpdateChecker {
 public:
  UpdateChecker(const ProgramFacts& facts, const RankValuesOptions& options,
                const RankValues& values, WhatIfFlows* what_if, ProgramRef ref, Findings* findings)
      : facts_(facts),
        program_(facts.program()),
        parameters_(program_),
        options_(options),
        synchronized_(FindSynchronized(facts, options.setting)),
        values_(values),
        what_if_(what_if),
        report_(ref, findings) {}

  void Check();

 private:
  struct Update {
    Symbol param, grad;
    VarId var;  // the parameter, of which `param` may be the mirror or the change
    const RankUpdate& found;
  };

  Update UpdateOf(const RankUpdate& found) const;
  void CheckUpdate(const Update& update);
  // Whether ranks average the parameter or, as an outer optimizer does that the setting claims,
  // make it of what they have averaged.
  bool IsAveraged(VarId var) const;
  void CheckAveragedParameter(const Update& update);
  void ReportRankLocalParameter(const Update& update);
  void CheckManualUpdates();
  std::string AdviceForStatistic(VarId var) const;
  void Report(const UpdateProblem& problem, const Update& update);
  UpdateProblem WithAdvice(UpdateProblem problem, const Update& update) const;
  absl::string_view NameOf(const Update& update) const;  // of the parameter
  // Whether ranks begin with different values.
  bool DiffersAtStart(absl::string_view param) const;
  bool IsDistributed(absl::string_view param) const {
    return options_.setting.distributed_params.count(std::string(param)) > 0;
  }

  const ProgramFacts facts_;
  const Program& program_;
  const UpdatedParameters parameters_;
  const RankValuesOptions& options_;
  const absl::flat_hash_set<VarId> synchronized_;
  const RankValues& values_;
  WhatIfFlows* const what_if_;  // may be null
  Reporter report_;
  absl::optional<RankDivergence> divergence_;  // computed on demand
  // A parameter is not equal on all ranks when training begins.
  bool starts_differ_ = false;
  // Of gradients that an all-reduce sums: what is wrong unless that explains it.
  std::vector<std::pair<UpdateProblem, Update>> after_sums_;
};

UpdateChecker::Update UpdateChecker::UpdateOf(const RankUpdate& found) const {
  const Op op = program_.op(found.op);
  const Symbol name = op.Input("Param")[found.index];
  const VarId var = parameters_.Of(program_.block(op.block()).Resolve(name));
  return {name, op.Input("Grad")[found.index], var, found};
}

void UpdateChecker::Check() {
  for (const RankUpdate& found : values_.events().updates) {
    const Update update = UpdateOf(found);
    if (!IsDistributed(NameOf(update))) CheckUpdate(update);
  }
  // Parameters that differ explain these.
  if (!starts_differ_) {
    for (const auto& [problem, update] : after_sums_) Report(problem, update);
  }
  CheckManualUpdates();
}

void UpdateChecker::CheckUpdate(const Update& update) {
  const RankValue& grad = update.found.grad;
  const VarId var = update.var;
  const bool is_averaged = var.valid() && IsAveraged(var);
  const bool is_own =
      grad.placement == Placement::kLocal || grad.placement == Placement::kPartialSum;
  if (is_own && is_averaged) return CheckAveragedParameter(update);
  const absl::optional<UpdateProblem> placement =
      ProblemOfPlacement(program_, grad, update.found.param, options_.group);
  if (placement.has_value()) return Report(*placement, update);
  const absl::optional<UpdateProblem> mean = ProblemOfMean(program_, grad, options_.group);
  if (mean.has_value()) {
    // Sums of gradients by half-precision copies of parameters that differ are no sums by samples.
    const OpId nonlinear_op = grad.first_nonlinear_op;
    const bool is_sum =
        nonlinear_op.valid() && FindCollectiveOp(program_.op(nonlinear_op)) != nullptr;
    if (!is_sum) return Report(WithAdvice(*mean, update), update);
    if (DiffersAtStart(NameOf(update))) return ReportRankLocalParameter(update);
    after_sums_.emplace_back(*mean, update);
    return;
  }
  if (grad.is_zero) return;
  if (grad.reductions > 1) {
    Report({"W316",
            absl::StrCat("which passes through ", grad.reductions, " collectives; one is enough")},
           update);
  }
  if (grad.placement == Placement::kReplicated && var.valid() &&
      values_.AtStart(var).placement == Placement::kLocal && !is_averaged) {
    ReportRankLocalParameter(update);
  }
}

bool UpdateChecker::IsAveraged(VarId var) const {
  return values_.AtEnd(var).averaged_across_ranks || synchronized_.contains(var);
}

// A mode that averages gradients averages the statistics of rows, too.
UpdateProblem UpdateChecker::WithAdvice(UpdateProblem problem, const Update& update) const {
  const auto makes_it = [&](const Op& op) {
    return absl::c_any_of(RowSumsOf(op).outputs, [&](absl::string_view slot) {
      return absl::c_linear_search(op.Output(slot), update.grad);
    });
  };
  if (update.found.grad.unscaled_sums < 0 && absl::c_any_of(AllOps(program_), makes_it)) {
    absl::StrAppend(&problem.why,
                    "; it counts rows, and ranks have to add up their counts: pass option:nranks, "
                    "with which modes add up gradients instead of averaging them");
  }
  return problem;
}

// LocalSGD: each rank updates by its local gradient until parameters are averaged.
void UpdateChecker::CheckAveragedParameter(const Update& update) {
  if (DiffersAtStart(NameOf(update))) {
    Report({"W317", kDiffersAtStart, OpId(), /*is_of_start=*/true}, update);
  }
  if (update.found.grad.unscaled_sums != 0 && !update.found.grad.is_zero) {
    Report({"W314",
            "which is divided by the number of ranks, although each rank updates by its local "
            "gradient"},
           update);
  }
}

// The gradient is equal on all ranks, but the parameter is not.
void UpdateChecker::ReportRankLocalParameter(const Update& update) {
  RankDivergence::Cause cause;
  if (DiffersAtStart(NameOf(update))) {
    starts_differ_ = true;
  } else {
    if (!divergence_.has_value()) divergence_.emplace(program_, values_);
    cause = divergence_->Of(update.var);
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
  Report({"W317", why, cause.op, /*is_of_start=*/!cause.op.valid()}, update);
}

// Parameters that other ops than optimizers update.
void UpdateChecker::CheckManualUpdates() {
  std::vector<VarId> vars;
  for (const Var& var : AllVars(program_)) {
    if (var.is_parameter() && values_.IsWritten(var.id())) vars.push_back(var.id());
  }
  if (vars.empty()) return;
  std::vector<bool> is_checked(program_.var_id_limit(), false);
  const auto exclude = [&](VarId var) {
    if (var.valid()) is_checked[var.value()] = true;
  };
  for (const RankUpdate& found : values_.events().updates) exclude(UpdateOf(found).var);
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
    const RankValue& end = values_.AtEnd(id);
    if (end.placement == Placement::kReplicated || IsAveraged(id) || IsDistributed(var.name())) {
      continue;
    }
    if (end.IsOfSomeRanks()) {
      report_.Add(
          "W311", end.first_nonlinear_op, var.name(),
          absl::StrCat("parameter ", var.name(), " is ",
                       end.rank >= 0 ? absl::StrCat("the value of rank ", end.rank, " alone")
                                     : ToString(end.placement),
                       " after a step: expected an update by the mean over all ranks"));
      continue;
    }
    // A state, as the queue of a contrastive loss: layer 7 says what it is (W703).
    if (var.stop_gradient() && !facts_.Get(FindDifferentiated).contains(id)) continue;
    report_.Add("W310", end.first_nonlinear_op, var.name(),
                absl::StrCat("parameter ", var.name(), " is ", ToString(end.placement),
                             " after a step: its gradient is never reduced over the ranks",
                             AdviceForStatistic(id)));
  }
}

// A statistic of the batch, such as a running mean, that is declared as a parameter.
std::string UpdateChecker::AdviceForStatistic(VarId var) const {
  if (what_if_ == nullptr) return "";
  const std::string options = what_if_->OptionsFor(
      WhatIfFlows::kStatistics,
      [&](const BatchFlow& flow) { return flow.AtEnd(var).relation.IsSame(); });
  return options.empty() ? "" : absl::StrCat("; transpile ", options, " reduces it");
}

void UpdateChecker::Report(const UpdateProblem& problem, const Update& update) {
  const absl::string_view grad = program_.name(update.grad), param = program_.name(update.param);
  const absl::string_view of = NameOf(update);
  report_.Add(problem.rule, update.found.op, grad,
              absl::StrCat(program_.op(update.found.op).DebugName(), " updates ", param,
                           of == param ? "" : absl::StrCat(" of parameter ", of), " by ", grad,
                           ", ", problem.why),
              problem.other.valid() ? problem.other : update.found.grad.first_nonlinear_op,
              problem.is_of_start ? absl::make_optional(FindingKind::kStart) : absl::nullopt);
}

absl::string_view UpdateChecker::NameOf(const Update& update) const {
  return update.var.valid() ? program_.var(update.var).name() : program_.name(update.param);
}

bool UpdateChecker::DiffersAtStart(absl::string_view param) const {
  if (options_.start == nullptr) return false;
  const auto start = options_.start->find(param);
  return start != options_.start->end() && !start->second.IsEqualOnRanks();
}

}  // namespace

void CheckUpdates(const ProgramFacts& facts, const RankValuesOptions& options,
                  const RankValues& values, WhatIfFlows* what_if, ProgramRef ref,
                  Findings* findings) {
  UpdateChecker(facts, options, values, what_if, ref, findings).Check();
}

}  // namespace weft
