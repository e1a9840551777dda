// What variables hold when a step begins, and what one step leaves to the next.
#ifndef WEFT_OPS_ANALYSIS_RANK_STEPS_H_
#define WEFT_OPS_ANALYSIS_RANK_STEPS_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ops/analysis/rank_memory.h"
#include "ops/analysis/rank_value.h"
#include "ops/analysis/rank_values.h"
#include "proto/program.h"

namespace weft {

// What variables hold when a step begins, where steps before it have left other values than they
// hold when the first one begins. Few, so that they are kept apart: a value takes more memory than
// all else that is known of a variable.
using CarriedValues = absl::flat_hash_map<VarId, RankValue>;

// What all variables hold when a step begins, by VarId. O(variables).
void SetStartValues(const Program& program, const RankValuesOptions& options,
                    const CarriedValues& carried, std::vector<RankValue>* values);

// Makes `carried` less equal where a step left less in a variable that stays; true where anything
// changed. With `widen`, whatever was written becomes own to each rank, so that there is an end to
// it. O(variables).
bool CarryOver(const Program& program, const RankValuesOptions& options,
               const RankMemory& end_of_step, bool widen, CarriedValues* carried);

// `carried`, and what all variables hold when the first step begins that hold something else than
// `others`: what those do that nobody keeps or feeds.
CarriedValues ValuesAtStart(const Program& program, const RankValuesOptions& options,
                            CarriedValues carried, RankValue* others);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_RANK_STEPS_H_
