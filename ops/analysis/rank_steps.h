// What variables hold when a step begins, and what one step leaves to the next.
#ifndef WEFT_OPS_ANALYSIS_RANK_STEPS_H_
#define WEFT_OPS_ANALYSIS_RANK_STEPS_H_

#include <vector>

#include "ops/analysis/rank_memory.h"
#include "ops/analysis/rank_value.h"
#include "ops/analysis/rank_values.h"
#include "proto/program.h"

namespace weft {

// By VarId. O(variables).
std::vector<RankValue> ValuesAtFirstStep(const Program& program, const RankValuesOptions& options);

// Makes `start_values`, by VarId, less equal where a step left less in a variable that stays; true
// where anything changed. With `widen`, whatever was written becomes own to each rank, so that
// there is an end to it. O(variables).
bool CarryOver(const Program& program, const RankMemory& end_of_step, bool widen,
               std::vector<RankValue>* start_values);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_RANK_STEPS_H_
