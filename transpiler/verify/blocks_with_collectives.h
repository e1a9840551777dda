// Which blocks of a program make ranks wait for each other.
#ifndef WEFT_TRANSPILER_VERIFY_BLOCKS_WITH_COLLECTIVES_H_
#define WEFT_TRANSPILER_VERIFY_BLOCKS_WITH_COLLECTIVES_H_

#include <vector>

#include "proto/program.h"

namespace weft {

// By block: whether it holds collectives, itself or in blocks of its ops. O(ops).
std::vector<bool> BlocksWithCollectives(const Program& program);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_BLOCKS_WITH_COLLECTIVES_H_
