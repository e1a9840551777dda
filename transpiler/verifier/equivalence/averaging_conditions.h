// When parameters are averaged: do the conditions hold in the right steps?
#ifndef WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_AVERAGING_CONDITIONS_H_
#define WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_AVERAGING_CONDITIONS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/values/expressions.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/averaging_schedule.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "transpiler/verifier/equivalence/condition_steps.h"

namespace weft {

class AveragingConditions {
 public:
  // Programs and table must outlive this object.
  AveragingConditions(const ConstProgramPair& programs,
                      const absl::optional<AveragingSchedule>& expected, ExpressionTable* table)
      : programs_(programs), expected_(expected), table_(*table), steps_(programs) {}

  // Looks up the op of each condition. Call first.
  void FindBranches(const RankValues& after);

  // Whether the conditions of all parameters must be known before one can be judged.
  bool AreJudgedTogether() const { return expected_.has_value() && expected_->HasTurns(); }

  // What is wrong with averaging a parameter on a condition (invalid: in every step); empty if
  // nothing. Runs the condition from the startup program on, once per condition. If that is
  // impossible and no schedule is expected, the condition must change from step to step according
  // to `after`, the values after a step; null: it counts as constant.
  std::string Problem(ExprId condition, const RankValues* after);

  // The same of the means over groups of ranks, which the schedule has; without a condition
  // (invalid), there are none.
  bool HasGroups() const { return expected_.has_value() && expected_->HasGroups(); }
  int group_size() const { return expected_->group_size; }
  std::string ProblemOfGroups(ExprId condition);

  // What is wrong with taking outer gradients on condition `launch` that a synchronization on
  // another condition uses: it must hold AveragingSchedule::delay steps before that one, and never
  // else.
  std::string ProblemOfLaunch(ExprId launch, ExprId condition);

  // The same as Problem, for parameters that are averaged in turn, by condition; empty where
  // nothing is wrong. With K conditions, the n-th one in the order of the program must hold in
  // steps n, n + K, ..., or in those of fragment n of the schedule. O(conditions log conditions +
  // steps) if they compare one remainder with constants.
  absl::flat_hash_map<ExprId, std::string> ProblemsInTurn(std::vector<ExprId> conditions);

 private:
  struct Branch {
    OpId op;
    Symbol condition;
    size_t place;  // among all
  };

  std::string ProblemInEveryStep() const;
  std::string ProblemOnCondition(ExprId condition, const RankValues* after);
  std::string ProblemOfTurn(ExprId condition, size_t turn, size_t turns);
  std::string Describe(ExprId condition, absl::string_view why) const;
  // The steps of a condition, as known up to `horizon`. Unimplemented if it cannot be followed.
  absl::StatusOr<const ConditionSteps::Steps*> StepsOf(ExprId condition, int horizon);
  bool Changes(ExprId condition, const RankValues& after);
  absl::flat_hash_set<ExprId> ChangingVariables(const RankValues& after) const;

  const ConstProgramPair programs_;
  const absl::optional<AveragingSchedule> expected_;
  ExpressionTable& table_;
  absl::flat_hash_map<ExprId, Branch> branches_;  // of the root block
  absl::flat_hash_map<ExprId, std::string> problems_;
  absl::optional<absl::flat_hash_set<ExprId>> changing_;  // computed on demand
  ConditionSteps steps_;
  bool are_announced_ = false;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_AVERAGING_CONDITIONS_H_
