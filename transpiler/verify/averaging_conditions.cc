#include "transpiler/verify/averaging_conditions.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/feed_layout.h"
#include "ops/analysis/scalar_slice.h"

namespace weft {
namespace {

// Steps to check; more only until the condition has held twice.
constexpr int kSteps = 10000;
constexpr int kMaxSteps = 1 << 22;

// These return what is wrong with the steps in which a condition holds, as the rest of a sentence
// ("which holds in step 3, expected every 4 steps"); empty if nothing. They run the slice.
//
// The condition must hold in the steps of a schedule, checked to step kSteps and to at least its
// second averaging step.
std::string DifferenceFrom(const AveragingSchedule& expected, ScalarSlice* slice) {
  const int64_t last =
      std::max<int64_t>(kSteps, int64_t{expected.first_step} + 2 * int64_t{expected.period});
  if (last > kMaxSteps) {
    return absl::StrCat("which would have to be followed for ", last, " steps, more than ",
                        kMaxSteps);
  }
  for (int64_t step = 1; step <= last; ++step) {
    const absl::StatusOr<double> holds = slice->RunStep();
    if (!holds.ok()) return absl::StrCat("which fails: ", holds.status().message());
    const bool is_due = step % expected.period == 0 && step >= expected.first_step;
    if ((*holds != 0) == is_due) continue;
    return absl::StrCat("which ", is_due ? "does not hold" : "holds", " in step ", step,
                        ", expected ", ToString(expected));
  }
  return "";
}

// The condition must hold repeatedly, but not always.
std::string ProblemOfAnySchedule(ScalarSlice* slice) {
  int times = 0, last = 0, longest_wait = 0, step = 0;
  while (step < kSteps || (times < 2 && step < kMaxSteps)) {
    const absl::StatusOr<double> holds = slice->RunStep();
    if (!holds.ok()) return absl::StrCat("which fails: ", holds.status().message());
    ++step;
    if (*holds == 0) continue;
    ++times;
    longest_wait = std::max(longest_wait, step - last);
    last = step;
  }
  if (times == 0 || times == step) return "which is the same in every step";
  if (step - last <= 2 * longest_wait && times > 1) return "";
  return absl::StrCat("which holds in step ", last, ", and then not until step ", step);
}

}  // namespace

void AveragingConditions::OnBranch(const Op& op, Symbol condition, const RankValue& value) {
  const bool decides =
      op.Input("Cond").size() == 1 && op.BoolAttr("is_scalar_condition").value_or(false);
  if (!value.expr.valid() || op.block() != 0 || !decides) return;
  branches_.emplace(table_.Scaled(value.expr, value.factor), Branch{op.id(), condition});
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
  if (!expected_.has_value() || *expected_ == AveragingSchedule()) return "";
  return absl::StrCat("it is averaged over the ranks in every step, expected ",
                      ToString(*expected_));
}

std::string AveragingConditions::ProblemOnCondition(ExprId condition, const RankValues* after) {
  absl::StatusOr<ScalarSlice> slice = absl::UnimplementedError("no startup program is given");
  const auto branch = branches_.find(condition);
  if (branch == branches_.end()) {
    slice = absl::UnimplementedError("no op of the root block decides on it");
  } else if (programs_.startup != nullptr) {
    slice = ScalarSlice::Of(*programs_.main, *programs_.startup, branch->second.op,
                            branch->second.condition);
  }
  std::string why;
  if (slice.ok()) {
    why =
        expected_.has_value() ? DifferenceFrom(*expected_, &*slice) : ProblemOfAnySchedule(&*slice);
  } else if (expected_.has_value()) {
    why = absl::StrCat("which cannot be followed: ", slice.status().message());
  } else if (after == nullptr || !Changes(condition, *after)) {
    why = "which is the same in every step";
  }
  if (why.empty()) return "";
  return absl::StrCat("it is averaged over the ranks on condition ", table_.ToString(condition, 4),
                      ", ", why);
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
