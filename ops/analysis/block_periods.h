// In which steps the blocks of a program run.
#ifndef WEFT_OPS_ANALYSIS_BLOCK_PERIODS_H_
#define WEFT_OPS_ANALYSIS_BLOCK_PERIODS_H_

#include <cstdint>
#include <vector>

#include "proto/program.h"

namespace weft {

// By block: 1 for a block that runs in every step (the root), k for one that runs in every k-th, 0
// for one of which that cannot be seen.
//
// What is seen is a conditional block of the root block whose condition counts steps: equal of 0
// and elementwise_mod(counter, k), where k and 0 are filled with constants by this program, and the
// counter is persistable and an increment by 1 is the last op that writes it before. Joined to that
// by logical_and, conditions that hold from some step on (greater_equal of the counter and a
// constant) count as true. Anything else, loops, blocks in blocks and blocks that several ops run
// are 0. O(arguments).
std::vector<int64_t> BlockPeriods(const Program& program);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_BLOCK_PERIODS_H_
