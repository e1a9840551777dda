// Do synchronizations move parameters as the outer optimizer does that is claimed?
#ifndef WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_OUTER_UPDATES_H_
#define WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_OUTER_UPDATES_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/values/expressions.h"
#include "ops/analysis/values/rank_values.h"
#include "ops/schema/algebra.h"
#include "proto/averaging_schedule.h"
#include "proto/outer_optimizer.h"
#include "proto/program_pair.h"

namespace weft {

// Knows no names: the states of the outer optimizer are those that the rewrite has added and whose
// values after a synchronization follow from the formulas of OuterOptimizer.
class OuterUpdates {
 public:
  // `options`: as for RankValues::Of of the rewritten program. All must outlive this object.
  OuterUpdates(const ConstProgramPair& original, const ConstProgramPair& rewritten,
               const RankValuesOptions& options, ExpressionTable* table);

  const OuterOptimizer& outer() const { return outer_; }

  // Finds the states. `after`: of the rewritten program. Call first. O(persistable variables).
  void FindStates(const RankValues& after);

  // A parameter where ranks synchronize.
  struct Synchronized {
    ExprId value, local;  // after and before the synchronization
    ExprId condition;     // invalid: in every step
    ExprId rate;          // the learning rate of its optimizer; invalid: it has none
  };
  // The states of a parameter, and what is wrong; empty: nothing.
  struct Result {
    std::string last, velocity, problem;
    // With a delay: the state of outer gradients on their way, and when they are taken.
    std::string gradient;
    ExprId launched_on;
    std::string error;  // what rounding takes from what travels; empty: nothing
  };
  Result Check(const Synchronized& param);

 private:
  struct State {
    std::string name;
    ExprId condition, value;  // where ranks synchronize
    RankValue::Placement placement;
  };
  using Formula = std::vector<ExpressionTable::Term>;

  const State* FindByValue(ExprId value) const;
  // That keeps the parameter after a synchronization.
  const State* FindLast(const Synchronized& param);
  // Checks how outer gradients come to all ranks, and sets *d to what they are where they move x.
  void CheckGradient(const Synchronized& param, const State& last, Formula* d, Result* result);
  // Whether outer gradients are rounded for their way.
  bool IsRounded(const State& last) const;
  // Checks that what is sent of *d and what is kept of it are *d, which becomes what arrives.
  // `from`: a value that is made of it.
  void CheckRounding(const State& last, ExprId from, ExprId condition, Formula* d, Result* result);
  // A state of each rank that a value is made of through sums, casts, means, products and
  // quotients.
  const State* FindErrorIn(ExprId value, ExprId condition, const State& last);
  // A state that changes on the condition and of which the value is made.
  const State* FindVelocityIn(ExprId value, const Synchronized& param, const State& last);
  // Another one, that changes on another condition.
  const State* FindGradientIn(ExprId value, const Synchronized& param);
  // What is wrong with a state that has the value of `formula` where `condition` holds.
  std::string ProblemOf(const State& state, ExprId condition, Formula formula,
                        absl::string_view what);
  // `d`: the outer gradient.
  void CheckSgd(const Synchronized& param, const State& last, const Formula& d, Result* result);
  void CheckNesterov(const Synchronized& param, const State& last, const Formula& d,
                     Result* result);
  void CheckSlowMo(const Synchronized& param, const State& last, const Formula& d, Result* result);
  // Of a product or quotient of two variables of the rewritten program.
  absl::optional<Algebra> ProductAlgebraOf(ExprId value);
  // One that is a term of the value.
  ExprId FindTerm(ExprId value, Algebra algebra);
  ExprId SumOf(Formula terms);

  const ConstProgramPair original_, rewritten_;
  const RankValuesOptions& options_;
  const OuterOptimizer outer_;
  const int delay_;
  const AveragingSchedule::Sent sent_;
  const double lr_, momentum_, mix_, rest_;  // as attributes of ops hold them; rest_: 1 - mix
  ExpressionTable& table_;
  std::vector<State> states_;
  absl::flat_hash_map<ExprId, size_t> by_value_;    // of states_: by value, without its factor
  absl::flat_hash_map<ExprId, size_t> by_initial_;  // by the value before a step
  // Of products and quotients of two variables. Computed on demand.
  absl::flat_hash_map<OperationId, Algebra> algebra_of_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_OUTER_UPDATES_H_
