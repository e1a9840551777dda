// Why a variable that is equal on all ranks at the start of a step differs at its end.
#ifndef WEFT_OPS_ANALYSIS_VALUES_RANK_DIVERGENCE_H_
#define WEFT_OPS_ANALYSIS_VALUES_RANK_DIVERGENCE_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/program.h"

namespace weft {

class RankDivergence {
 public:
  struct Cause {
    // Writes the variable, or runs the block of an op that does; invalid: no op does.
    OpId op;
    // An input of that op that differs between ranks; invalid: none, the op draws the value or
    // reads the variable itself.
    Symbol variable;
    // `variable` decides whether the op runs its block.
    bool is_condition = false;
  };

  // Both must outlive this object. O(arguments).
  RankDivergence(const Program& program, const RankValues& values);

  // For a persistable variable of block 0: the first op that is a cause. Judges inputs by their
  // values at the end of the step. O(arguments of the ops that write it).
  Cause Of(VarId var) const;

 private:
  VarId Resolve(const Op& op, Symbol name) const {
    return program_.block(op.block()).Resolve(name);
  }
  // The first of the names that differs between ranks and is not in `except`.
  Symbol FindOwn(const Op& op, absl::Span<const Symbol> names,
                 const std::vector<VarId>& except) const;
  // Of the op, or of an op that runs its block.
  Cause FindCondition(Op op) const;

  const Program& program_;
  const RankValues& values_;
  std::vector<OpId> holder_;                               // by block: the op that runs it
  absl::flat_hash_map<VarId, std::vector<OpId>> writers_;  // of persistable variables
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_RANK_DIVERGENCE_H_
