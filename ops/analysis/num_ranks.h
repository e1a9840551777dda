// For how many ranks a program was written.
#ifndef WEFT_OPS_ANALYSIS_NUM_RANKS_H_
#define WEFT_OPS_ANALYSIS_NUM_RANKS_H_

#include "absl/types/optional.h"
#include "proto/program.h"

namespace weft {

// The number of ranks that a program, or its startup program, which may be null, was written for:
// what ring set-up says, or attribute nranks, or the division of a loss's gradient; none where
// nothing says it. O(ops).
absl::optional<int> FindNumRanks(const Program& main, const Program* startup);

// Of the ring that an op of trait kRingSetup sets up: ranks, trainers times devices, or devices;
// none where it does not say it.
absl::optional<int> RingSize(const Op& op);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_NUM_RANKS_H_
