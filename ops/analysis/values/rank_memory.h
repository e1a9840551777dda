// The values of variables on ranks during a walk over a program.
#ifndef WEFT_OPS_ANALYSIS_VALUES_RANK_MEMORY_H_
#define WEFT_OPS_ANALYSIS_VALUES_RANK_MEMORY_H_

#include "absl/types/optional.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/values/rank_expressions.h"
#include "ops/analysis/values/rank_values.h"
#include "ops/analysis/values/step_walk.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

class RankMemory : public StepWalk<RankValue> {
 public:
  // Values have expressions while expressions_ makes them.
  RankMemory(const ProgramFacts& facts, ExpressionTable* table)
      : StepWalk<RankValue>(facts), expressions_(table) {}

  // From now on the value of a variable is Initial(name) times its power of `nranks`, whether or
  // not it was written before.
  void ForgetExpressions(double nranks);

  // The value of an argument.
  RankValue Read(Symbol name) const;
  RankValue Read(VarId var) const { return WithExpr(at(var), var); }
  // As declared.
  absl::optional<TensorType> TypeOf(Symbol name) const {
    const VarId var = Resolve(name);
    return var.valid() ? DeclaredType(program_.var(var)) : absl::nullopt;
  }
  // The expression of what the variable holds when a step begins.
  virtual ExprId InitialOf(VarId var) const {
    return expressions_.table()->Initial(program_.var(var).name());
  }
  // Does nothing for an invalid variable.
  void Write(VarId var, const RankValue& value) {
    if (var.valid()) StepWalk<RankValue>::Write(var, value);
  }
  RankValue HeldBefore(const LogEntry& entry) const { return WithExpr(entry.value, entry.var); }

  // Whether the parts of two buffers are known to lie at the same elements. O(parts).
  bool AreLaidOutAlike(VarId a, VarId b) const;
  // Writes the value to all parts of a buffer, or to another variable.
  void WriteAll(VarId var, const RankValue& value) {
    if (PartsOf(var).empty()) return Write(var, value);
    for (VarId part : PartsOf(var)) Write(part, value);
  }

 protected:
  RankExpressions expressions_;

 private:
  RankValue WithExpr(RankValue value, VarId var) const {
    if (expressions_.AreMade() && !value.expr.valid()) {
      value.expr = InitialOf(var);
    }
    return value;
  }
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_RANK_MEMORY_H_
