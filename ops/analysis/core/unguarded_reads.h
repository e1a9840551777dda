// Reads of what only blocks that may not run have written.
#ifndef WEFT_OPS_ANALYSIS_CORE_UNGUARDED_READS_H_
#define WEFT_OPS_ANALYSIS_CORE_UNGUARDED_READS_H_

#include <cstdint>
#include <vector>

#include "proto/program.h"

namespace weft {

struct UnguardedRead {
  OpId op;
  uint32_t arg;  // an input of the op
  VarId var;     // the argument, or a part of the buffer that it names
  OpId writer;   // the op that runs the block with the last write
};

// The first read of each tensor after which it may lack a value of this step: only branches and
// loops have written it, and the reader may run where they do not. Not of tensors that are
// persistable or fed, and not of those that nothing has written before.
//
// Follows conditions as long as nothing writes them, and what casts, copies, logical_not,
// logical_and and logical_or make of them. So it knows that blocks with one condition run together,
// that of a block and one with the opposite condition one runs, what select_input takes, and that
// the gradient of a loop runs as often as the loop. A loop may run zero times. Of ops with blocks
// that are neither, nothing is said.
//
// Of a program with one block: O(1). Else O(arguments * block depth).
std::vector<UnguardedRead> FindUnguardedReads(const Program& program);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_UNGUARDED_READS_H_
