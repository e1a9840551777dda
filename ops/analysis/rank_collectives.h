// What collectives make of values on ranks.
#ifndef WEFT_OPS_ANALYSIS_RANK_COLLECTIVES_H_
#define WEFT_OPS_ANALYSIS_RANK_COLLECTIVES_H_

#include "ops/analysis/rank_count.h"
#include "ops/analysis/rank_expressions.h"
#include "ops/analysis/rank_value.h"
#include "ops/schema/communication_ops.h"
#include "proto/program.h"

namespace weft {

class RankCollectives {
 public:
  // With `sums_are_wanted`, the first sum that a value goes through counts as a mean.
  RankCollectives(RankCount ranks, bool sums_are_wanted, RankExpressions* expressions)
      : ranks_(ranks), sums_are_wanted_(sums_are_wanted), expressions_(*expressions) {}

  RankValue After(const Op& op, const CollectiveOp& collective, const RankValue& in);
  // The sum over all ranks.
  RankValue Sum(const Op& op, const RankValue& in);

 private:
  RankValue Mean(const Op& op, const RankValue& in);
  // Whether its sum does. What is the same on all ranks is no gradient that somebody wants summed.
  bool CountsAsMean(const RankValue& in) const {
    return sums_are_wanted_ && in.reductions == 0 && in.placement == RankValue::Placement::kLocal;
  }

  const RankCount ranks_;
  const bool sums_are_wanted_;
  RankExpressions& expressions_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_RANK_COLLECTIVES_H_
