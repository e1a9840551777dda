#include "transpiler/verify/averaging_conditions.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/scalar_slice.h"

namespace weft {

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
    why = ProblemOfSchedule(&*slice, expected_);
  } else if (expected_.has_value()) {
    why = absl::StrCat("which cannot be followed: ", slice.status().message());
  } else if (after == nullptr || !Changes(condition, *after)) {
    // Data may decide, as long as it can change.
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

// Variables that begin the next step with another value: data, and what a step changes.
absl::flat_hash_set<ExprId> AveragingConditions::ChangingVariables(const RankValues& after) const {
  const Program& program = *programs_.main;
  absl::flat_hash_set<ExprId> changing;
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    if (!var.persistable() && !var.need_check_feed()) continue;
    const ExprId start = table_.Initial(var.name());
    const RankValue& end = after.AtEnd(id);
    const bool is_changed = var.persistable() && after.IsWritten(id) && end.expr.valid() &&
                            (end.expr != start || !SameFactor(end.factor, 1));
    if (is_changed || var.need_check_feed()) changing.insert(start);
  }
  return changing;
}

}  // namespace weft
