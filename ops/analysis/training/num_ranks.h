// The number of ranks that a program was written for.
#ifndef WEFT_OPS_ANALYSIS_TRAINING_NUM_RANKS_H_
#define WEFT_OPS_ANALYSIS_TRAINING_NUM_RANKS_H_

#include "absl/types/optional.h"
#include "proto/program.h"

namespace weft {

// From ring set-up in the startup program (may be null) or main program, else from attribute
// nranks, else from the division of a loss's gradient; none if nothing says it. O(ops).
absl::optional<int> FindNumRanks(const Program& main, const Program* startup);

// The size of the ring that an op of trait kRingSetup sets up: ranks, trainers times devices, or
// devices; none if the op does not say it.
absl::optional<int> RingSize(const Op& op);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TRAINING_NUM_RANKS_H_
