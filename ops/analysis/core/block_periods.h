// In which steps the blocks of a program run.
#ifndef WEFT_OPS_ANALYSIS_CORE_BLOCK_PERIODS_H_
#define WEFT_OPS_ANALYSIS_CORE_BLOCK_PERIODS_H_

#include <cstdint>
#include <vector>

#include "proto/program.h"

namespace weft {

// By block: 1 for the root, which runs in every step; k for a block that runs in every k-th step; 0
// if unknown.
//
// Known are conditional blocks of the root block whose condition counts steps: equal of a constant
// 0 <= c < k and elementwise_mod(counter, k), where this program fills k and c with constants, and
// the counter is persistable and last written by an increment by 1. Conditions that hold from a
// step on (greater_equal of the counter and a constant) count as true if logical_and joins them to
// that. Unknown are all others: loops, nested blocks, and blocks that several ops run.
// O(arguments).
std::vector<int64_t> BlockPeriods(const Program& program);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_BLOCK_PERIODS_H_
