// What ops that every rank computes for itself make of values on ranks.
#ifndef WEFT_OPS_ANALYSIS_RANK_FUNCTIONS_H_
#define WEFT_OPS_ANALYSIS_RANK_FUNCTIONS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "ops/analysis/expressions.h"
#include "ops/analysis/op_operations.h"
#include "ops/analysis/rank_count.h"
#include "ops/analysis/rank_expressions.h"
#include "ops/analysis/rank_memory.h"
#include "ops/analysis/rank_recipe.h"
#include "ops/analysis/rank_sums.h"
#include "ops/analysis/rank_value.h"
#include "ops/analysis/rank_values.h"
#include "proto/program.h"

namespace weft {

class RankFunctions {
 public:
  // `memory` tells whose gradients are whose; `operations` may be null where no expressions are
  // made, `observer` always.
  RankFunctions(const Program& program, RankCount ranks, const RankMemory& memory, RankSums* sums,
                RankExpressions* expressions, OpOperations* operations, RankObserver* observer)
      : program_(program),
        ranks_(ranks),
        memory_(memory),
        sums_(*sums),
        expressions_(*expressions),
        operations_(operations),
        observer_(observer) {}

  void StartWalk() { runs_.clear(); }

  // One value for each output of an op, in their order, from one for each input and, of an op that
  // keeps outputs, each output. Valid until the next call. O(arguments).
  absl::Span<const RankValue> Of(const Op& op, const RankRecipe& recipe,
                                 absl::Span<const RankValue> ins);

 private:
  // From ins_ to outs_.
  void Transfer(const Op& op, const RankRecipe& recipe);
  bool HoldsIntegers(const Op& op) const;
  bool MovesOneElement(const Op& op) const;
  RankValue AddOrSubtract(const Op& op, const RankRecipe& recipe);
  RankValue Cast(const Op& op);
  bool SplitGathered(const Op& op);
  void Apply(const Op& op, const RankRecipe& recipe);
  void FindSummed(const Op& op, const RankRecipe& recipe);
  int8_t FirstUnscaledSums() const;
  int ProductPower(const RankRecipe& recipe) const;
  void Update(const Op& op, const RankRecipe& recipe);
  void ApplyExpressions(const Op& op, const RankRecipe& recipe, bool is_linear, bool same_factor,
                        double common, bool shard_by_shard);
  void CastMaster(const Op& op, const RankRecipe& recipe);
  int BroadcastAxis(const Op& op);
  VarId ForwardOf(Symbol gradient);
  void SetAll(const RankValue& value);
  ExpressionTable& table() { return *expressions_.table(); }

  const Program& program_;
  const RankCount ranks_;
  const RankMemory& memory_;
  RankSums& sums_;
  RankExpressions& expressions_;
  OpOperations* const operations_;
  RankObserver* const observer_;

  absl::Span<const RankValue> ins_;
  std::vector<RankValue> outs_;
  std::vector<ExprId> operands_;
  std::vector<int> axes_;                       // by operation
  absl::flat_hash_map<OperationId, int> runs_;  // of random ops
  std::vector<int64_t> forward_of_;             // by Symbol: see ForwardOf
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_RANK_FUNCTIONS_H_
