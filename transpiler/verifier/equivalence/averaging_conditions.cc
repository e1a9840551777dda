#include "transpiler/verifier/equivalence/averaging_conditions.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/training/data_variables.h"

namespace weft {
namespace {

// Steps to check; more only until a condition has held twice.
constexpr int kSteps = 10000;
constexpr int kMaxSteps = 1 << 22;

using Steps = ConditionSteps::Steps;

// These return what is wrong with the steps in which a condition holds, as the rest of a sentence
// ("which holds in step 3, expected every 4 steps"); empty if nothing.
//
// The condition must hold in the due steps, as far as it was run: next_due(n) is the first of them
// from step n on. O(steps in which it holds) calls.
template <typename NextDue>
std::string DifferenceFrom(NextDue next_due, absl::string_view expected, const Steps& steps) {
  auto next = steps.held.begin();
  for (int due = next_due(1);; due = next_due(due + 1), ++next) {
    const int held = next == steps.held.end() ? steps.last + 1 : *next;
    const int step = std::min(due, held);
    if (step > steps.last) break;
    if (due == held) continue;
    return absl::StrCat("which ", held < due ? "holds" : "does not hold", " in step ", step,
                        ", expected ", expected);
  }
  if (!steps.failure.ok()) return absl::StrCat("which fails: ", steps.failure.message());
  return "";
}

// The condition must hold repeatedly, but not always.
std::string ProblemOfAnySchedule(const Steps& steps) {
  if (!steps.failure.ok()) return absl::StrCat("which fails: ", steps.failure.message());
  int last = 0, longest_wait = 0;
  for (int step : steps.held) {
    longest_wait = std::max(longest_wait, step - last);
    last = step;
  }
  const int times = static_cast<int>(steps.held.size());
  if (times == 0 || times == steps.last) return "which is the same in every step";
  if (steps.last - last <= 2 * longest_wait && times > 1) return "";
  return absl::StrCat("which holds in step ", last, ", and then not until step ", steps.last);
}

}  // namespace

void AveragingConditions::FindBranches(const RankValues& after) {
  for (const auto& [id, condition, value] : after.events().conditions) {
    const Op op = programs_.main->op(id);
    const bool decides = condition.valid() && op.Input("Cond").size() == 1 &&
                         op.BoolAttr("is_scalar_condition").value_or(false);
    if (!value.expr.valid() || op.block() != 0 || !decides) continue;
    branches_.emplace(table_.Scaled(value.expr, value.factor),
                      Branch{id, condition, branches_.size()});
  }
}

std::string AveragingConditions::Problem(ExprId condition, const RankValues* after) {
  const auto known = problems_.find(condition);
  if (known != problems_.end()) return known->second;
  const std::string problem =
      condition.valid() ? ProblemOnCondition(condition, after) : ProblemInEveryStep();
  problems_.emplace(condition, problem);
  return problem;
}

std::string AveragingConditions::ProblemInEveryStep() const {
  if (!expected_.has_value() || expected_->IsEveryStep()) return "";
  return absl::StrCat("it is averaged over the ranks in every step, expected ",
                      ToString(*expected_));
}

std::string AveragingConditions::Describe(ExprId condition, absl::string_view why) const {
  return absl::StrCat("it is averaged over the ranks on condition ", table_.ToString(condition, 4),
                      ", ", why);
}

absl::StatusOr<const Steps*> AveragingConditions::StepsOf(ExprId condition, int horizon) {
  // All at once, so that conditions share runs.
  if (!are_announced_) {
    for (const auto& [expr, branch] : branches_) steps_.Add(branch.op, branch.condition);
    are_announced_ = true;
  }
  const auto branch = branches_.find(condition);
  if (branch == branches_.end()) {
    return absl::UnimplementedError("no op of the root block decides on it");
  }
  return steps_.Run(branch->second.op, branch->second.condition, horizon);
}

std::string AveragingConditions::ProblemOnCondition(ExprId condition, const RankValues* after) {
  int64_t horizon = kSteps;
  if (expected_.has_value()) {
    const int64_t begin = std::max(expected_->first_step, expected_->begin_step);
    horizon = std::max(horizon, begin + 2 * int64_t{expected_->PeriodOfAll()});
    if (horizon > kMaxSteps) {
      return Describe(condition, absl::StrCat("which would have to be followed for ", horizon,
                                              " steps, more than ", kMaxSteps));
    }
  }
  absl::StatusOr<const Steps*> steps = StepsOf(condition, static_cast<int>(horizon));
  if (!steps.ok()) {
    if (expected_.has_value()) {
      return Describe(condition,
                      absl::StrCat("which cannot be followed: ", steps.status().message()));
    }
    if (after != nullptr && Changes(condition, *after)) return "";
    return Describe(condition, "which is the same in every step");
  }
  std::string why;
  if (expected_.has_value()) {
    const auto next_due = [&](int step) {
      while (step <= (*steps)->last && !expected_->IsDue(step)) ++step;
      return step;
    };
    why = DifferenceFrom(next_due, ToString(*expected_), **steps);
  } else {
    while ((*steps)->held.size() < 2 && (*steps)->failure.ok() && horizon < kMaxSteps) {
      horizon = std::min<int64_t>(2 * horizon, kMaxSteps);
      const absl::StatusOr<const Steps*> more = StepsOf(condition, static_cast<int>(horizon));
      if (!more.ok()) break;
      steps = more;
    }
    why = ProblemOfAnySchedule(**steps);
  }
  return why.empty() ? "" : Describe(condition, why);
}

std::string AveragingConditions::ProblemOfGroups(ExprId condition) {
  if (!condition.valid()) {
    return absl::StrCat("it is averaged over no groups of ranks, expected ", ToString(*expected_));
  }
  const int64_t horizon = std::max<int64_t>(kSteps, 2 * int64_t{expected_->PeriodOfAll()});
  const auto describe = [&](absl::string_view why) {
    return absl::StrCat("it is averaged over groups of ranks on condition ",
                        table_.ToString(condition, 4), ", ", why);
  };
  if (horizon > kMaxSteps) {
    return describe(absl::StrCat("which would have to be followed for ", horizon,
                                 " steps, more than ", kMaxSteps));
  }
  const absl::StatusOr<const Steps*> steps = StepsOf(condition, static_cast<int>(horizon));
  if (!steps.ok()) {
    return describe(absl::StrCat("which cannot be followed: ", steps.status().message()));
  }
  const auto next_due = [&](int step) {
    while (step <= (*steps)->last && !expected_->IsDueInGroups(step)) ++step;
    return step;
  };
  const std::string why = DifferenceFrom(next_due, ToString(*expected_), **steps);
  return why.empty() ? "" : describe(why);
}

absl::flat_hash_map<ExprId, std::string> AveragingConditions::ProblemsInTurn(
    std::vector<ExprId> conditions) {
  // In the order of their ops.
  const auto place_of = [&](ExprId condition) {
    const auto branch = branches_.find(condition);
    return branch == branches_.end() ? branches_.size() : branch->second.place;
  };
  std::stable_sort(conditions.begin(), conditions.end(),
                   [&](ExprId a, ExprId b) { return place_of(a) < place_of(b); });
  absl::flat_hash_map<ExprId, std::string> problems;
  for (size_t i = 0; i < conditions.size(); ++i) {
    problems[conditions[i]] = ProblemOfTurn(conditions[i], i + 1, conditions.size());
  }
  return problems;
}

std::string AveragingConditions::ProblemOfTurn(ExprId condition, size_t turn, size_t turns) {
  const bool is_in_fragments = !expected_->is_in_turn;
  if (is_in_fragments && turns != static_cast<size_t>(expected_->fragments)) {
    return absl::StrCat("all parameters are averaged on ", turns,
                        turns == 1 ? " condition" : " conditions", ", expected ",
                        ToString(*expected_));
  }
  if (turns == 1 && !condition.valid()) return "";
  const std::string expected =
      is_in_fragments ? absl::StrCat(ToString(*expected_), ", of which this is fragment ", turn)
      : turns == 1    ? "every step, as all parameters are averaged on one condition"
                   : absl::StrCat("step ", turn, " and every ", turns, " steps from there, as the ",
                                  turns, " partitions of the parameters take turns");
  if (!condition.valid()) {
    return absl::StrCat("it is averaged over the ranks in every step, expected ", expected);
  }
  const size_t every = is_in_fragments ? expected_->period : turns;
  const size_t horizon = std::max<size_t>(kSteps, 3 * every);
  if (horizon > kMaxSteps) {
    return Describe(condition, absl::StrCat("which would have to be followed for ", horizon,
                                            " steps, more than ", kMaxSteps));
  }
  const absl::StatusOr<const Steps*> steps = StepsOf(condition, static_cast<int>(horizon));
  if (!steps.ok()) {
    return Describe(condition,
                    absl::StrCat("which cannot be followed: ", steps.status().message()));
  }
  const auto period = static_cast<int>(every);
  const int phase =
      is_in_fragments ? expected_->PhaseOf(static_cast<int>(turn)) : static_cast<int>(turn);
  const int first = phase == 0 ? period : phase;
  const auto next_due = [&](int step) {
    return first + (std::max(step - first, 0) + period - 1) / period * period;
  };
  const std::string why = DifferenceFrom(next_due, expected, **steps);
  return why.empty() ? "" : Describe(condition, why);
}

std::string AveragingConditions::ProblemOfLaunch(ExprId launch, ExprId condition) {
  const int delay = expected_->delay;
  const auto describe = [&](absl::string_view why) {
    return absl::StrCat("its outer gradient is taken on condition ", table_.ToString(launch, 4),
                        ", ", why);
  };
  const int64_t horizon = std::max<int64_t>(kSteps, 3 * int64_t{expected_->period});
  if (horizon > kMaxSteps) {
    return describe(absl::StrCat("which would have to be followed for ", horizon,
                                 " steps, more than ", kMaxSteps));
  }
  Steps of_both[2];
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<const Steps*> steps =
        StepsOf(i == 0 ? launch : condition, static_cast<int>(horizon));
    if (!steps.ok()) {
      return describe(absl::StrCat("which cannot be followed: ", steps.status().message()));
    }
    of_both[i] = **steps;
  }
  Steps& launched = of_both[0];
  const Steps& used = of_both[1];
  launched.last = std::min(launched.last, used.last - delay);
  const auto next_due = [&, last = launched.last](int step) {
    const auto next = std::lower_bound(used.held.begin(), used.held.end(), step + delay);
    return next == used.held.end() ? last + 1 : *next - delay;
  };
  const std::string why = DifferenceFrom(
      next_due,
      absl::StrCat(delay, delay == 1 ? " step" : " steps", " before each synchronization, always"),
      launched);
  return why.empty() ? "" : describe(why);
}

bool AveragingConditions::Changes(ExprId condition, const RankValues& after) {
  if (!changing_.has_value()) changing_ = ChangingVariables(after);
  ExpressionWalk walk(table_);
  walk.Add(condition);
  while (!walk.done()) {
    if (changing_->contains(walk.Next())) return true;
  }
  return false;
}

// Variables with another value in the next step: feed variables, and those that a step changes.
absl::flat_hash_set<ExprId> AveragingConditions::ChangingVariables(const RankValues& after) const {
  const Program& program = *programs_.main;
  const absl::flat_hash_set<VarId> data = FindData(program);
  absl::flat_hash_set<ExprId> changing;
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    if (!var.persistable() && !data.contains(id)) continue;
    const ExprId start = table_.Initial(var.name());
    const RankValue& end = after.AtEnd(id);
    const bool is_changed =
        var.persistable() && after.IsWritten(id) && end.expr.valid() &&
        (end.expr != start || !SameFactor(end.factor, 1) || end.IsOfSomeRanks());
    if (is_changed || data.contains(id)) changing.insert(start);
  }
  return changing;
}

}  // namespace weft
