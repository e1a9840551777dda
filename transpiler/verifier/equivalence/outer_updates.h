// Do synchronizations move parameters as the outer optimizer does that is claimed?
#ifndef WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_OUTER_UPDATES_H_
#define WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_OUTER_UPDATES_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "ops/analysis/values/expressions.h"
#include "ops/analysis/values/rank_values.h"
#include "ops/schema/algebra.h"
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
  const State* FindVelocityIn(ExprId value, const State& last);
  // What is wrong with a state; `formula`: its value after a synchronization.
  std::string ProblemOf(const State& state, const Synchronized& param, Formula formula,
                        absl::string_view what);
  void CheckNesterov(const Synchronized& param, const State& last, Result* result);
  void CheckSlowMo(const Synchronized& param, const State& last, Result* result);
  // A product or quotient of two variables of the rewritten program that is a term of the value.
  ExprId FindTerm(ExprId value, Algebra algebra);
  ExprId SumOf(Formula terms);

  const ConstProgramPair original_, rewritten_;
  const RankValuesOptions& options_;
  const OuterOptimizer outer_;
  const double lr_, momentum_;  // as attributes of ops hold them
  ExpressionTable& table_;
  std::vector<State> states_;
  absl::flat_hash_map<ExprId, size_t> by_value_;    // of states_: by value, without its factor
  absl::flat_hash_map<ExprId, size_t> by_initial_;  // by the value before a step
  // Of products and quotients of two variables. Computed on demand.
  absl::flat_hash_map<OperationId, Algebra> algebra_of_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_OUTER_UPDATES_H_
