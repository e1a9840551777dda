// What branches make of values on ranks.
#ifndef WEFT_OPS_ANALYSIS_RANK_BRANCHES_H_
#define WEFT_OPS_ANALYSIS_RANK_BRANCHES_H_

#include "ops/analysis/rank_expressions.h"
#include "ops/analysis/rank_value.h"

namespace weft {

// `yes` where `condition` holds, else `no`.
RankValue SelectOnRanks(const RankValue& condition, const RankValue& yes, const RankValue& no,
                        RankExpressions* expressions);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_RANK_BRANCHES_H_
