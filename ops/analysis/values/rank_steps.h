// Values at the start of a step, and what one step leaves to the next.
#ifndef WEFT_OPS_ANALYSIS_VALUES_RANK_STEPS_H_
#define WEFT_OPS_ANALYSIS_VALUES_RANK_STEPS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ops/analysis/values/rank_memory.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/program.h"

namespace weft {

// The values at the start of a step of variables that earlier steps changed. Sparse, because few
// change and values are large.
using CarriedValues = absl::flat_hash_map<VarId, RankValue>;

// Sets the values of all variables at the start of a step, by VarId. O(variables).
void SetStartValues(const Program& program, const RankValuesOptions& options,
                    const CarriedValues& carried, std::vector<RankValue>* values);

// Which states become rank-local, so that the fixpoint is reached.
enum class Widening : uint8_t {
  kNone,
  kChanged,  // those that the step changes
  kAll,      // those that the step writes
};

// Joins the values of persistable variables at the end of a step to `carried`; returns whether one
// changed. O(variables).
bool CarryOver(const Program& program, const RankValuesOptions& options,
               const RankMemory& end_of_step, Widening widening, CarriedValues* carried);

// The values at the start of any step: `carried`, and those at the start of the first step.
// O(variables).
StepStartValues ValuesAtStart(const Program& program, const RankValuesOptions& options,
                              CarriedValues carried);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_RANK_STEPS_H_
