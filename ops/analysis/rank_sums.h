// What sums, differences and multiples make of values on ranks.
#ifndef WEFT_OPS_ANALYSIS_RANK_SUMS_H_
#define WEFT_OPS_ANALYSIS_RANK_SUMS_H_

#include <vector>

#include "absl/types/span.h"
#include "ops/analysis/rank_collectives.h"
#include "ops/analysis/rank_count.h"
#include "ops/analysis/rank_expressions.h"
#include "ops/analysis/rank_value.h"
#include "ops/analysis/rank_values.h"
#include "proto/program.h"

namespace weft {

class RankSums {
 public:
  RankSums(const RankValuesOptions& options, RankCollectives* collectives,
           RankExpressions* expressions)
      : ranks_(options),
        collectives_(*collectives),
        expressions_(*expressions),
        original_ops_(options.original_ops),
        observer_(options.observer) {}

  // ins[i] times factors[i], added up.
  RankValue Sum(const Op& op, absl::Span<const RankValue> ins, absl::Span<const double> factors);
  RankValue Multiple(const Op& op, const RankValue& in, double factor);

 private:
  bool AreAllRanks(absl::Span<const RankValue> ins) const;

  const RankCount ranks_;
  RankCollectives& collectives_;
  RankExpressions& expressions_;
  const std::vector<bool>* const original_ops_;  // may be null, as the other
  RankObserver* const observer_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_RANK_SUMS_H_
