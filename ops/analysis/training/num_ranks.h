// The number of ranks that a program was written for.
#ifndef WEFT_OPS_ANALYSIS_TRAINING_NUM_RANKS_H_
#define WEFT_OPS_ANALYSIS_TRAINING_NUM_RANKS_H_

#include <cstddef>

#include "absl/types/optional.h"
#include "proto/program.h"

namespace weft {

// From ring set-up in the startup program (may be null) or main program, else, of one of several
// programs, one for each rank, how many there are, else from attribute nranks, else from the
// division of a loss's gradient; none if nothing says it. What one of several programs divides by
// may be wrong. O(ops).
absl::optional<int> FindNumRanks(const Program& main, const Program* startup,
                                 size_t num_programs = 1);

// The size of the ring that an op of trait kRingSetup sets up: ranks, trainers times devices, or
// devices; none if the op does not say it.
absl::optional<int> RingSize(const Op& op);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TRAINING_NUM_RANKS_H_
