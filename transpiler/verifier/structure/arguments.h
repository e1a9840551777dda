// The arguments of ops, as the checks of layer 1 name them.
#ifndef WEFT_TRANSPILER_VERIFIER_STRUCTURE_ARGUMENTS_H_
#define WEFT_TRANSPILER_VERIFIER_STRUCTURE_ARGUMENTS_H_

#include <cstddef>
#include <string>

#include "proto/program.h"

namespace weft {

// The slot that holds the op's i-th argument: "input X".
std::string SlotOfArgument(const Op& op, size_t i);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_STRUCTURE_ARGUMENTS_H_
