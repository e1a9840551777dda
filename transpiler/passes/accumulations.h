// Gradients that are merged over steps.
#ifndef WEFT_TRANSPILER_PASSES_ACCUMULATIONS_H_
#define WEFT_TRANSPILER_PASSES_ACCUMULATIONS_H_

#include <vector>

#include "proto/program.h"

namespace weft {

// The elementwise ops of the root block that add to what is kept for a branch: dense persistable
// variables that only they and the branch use, also in a fused buffer of the branch.
//
//   Out=[w@MERGED] = elementwise_add(X=[w@MERGED], Y=[w@GRAD])
//   conditional_block(Input=[w@MERGED, ...])     updates by w@MERGED, and sets it to 0
//
// They should run on the device of the branch: w@GRAD is then copied, instead of w@MERGED there and
// back. O(arguments).
std::vector<OpId> FindAccumulations(const Program& program, OpId branch);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_ACCUMULATIONS_H_
