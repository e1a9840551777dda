// The arguments of ops, as the checks of layer 1 name and find them.
#ifndef WEFT_TRANSPILER_VERIFY_ARGUMENTS_H_
#define WEFT_TRANSPILER_VERIFY_ARGUMENTS_H_

#include <cstddef>
#include <string>

#include "proto/program.h"

namespace weft {

// The slot that holds the op's i-th argument: "input X".
std::string SlotOfArgument(const Op& op, size_t i);

// The variable that ops of the block see under the name; invalid if none is declared. A gradient
// block also sees the variables of its forward block, whose scopes Paddle keeps. O(block depth).
VarId ResolveArgument(const Program& program, int block, Symbol name);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_ARGUMENTS_H_
