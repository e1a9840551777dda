// Layer 1: Does every op have the variables, slots and attributes that it needs?
//
// Program::Parse already refuses malformed bytes, blocks whose parents are missing or form a cycle,
// variables declared twice in a block, and sub-blocks that do not exist.
#ifndef WEFT_TRANSPILER_VERIFIER_STRUCTURE_STRUCTURE_H_
#define WEFT_TRANSPILER_VERIFIER_STRUCTURE_STRUCTURE_H_

#include "absl/status/status.h"
#include "proto/program.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Checks that
// - every variable that an op names is declared in its block or an ancestor, or, for a gradient
//   block, in the forward block or its ancestors;
// - every registered op has the inputs and attributes that its schema requires, attributes of the
//   right type, and one variable in each slot for one.
//
// Blocks that no op runs are not checked: passes of Paddle leave some behind, and remove what these
// use. O(arguments * block depth).
void CheckStructure(const Program& program, ProgramRef ref, Findings* findings);

// InvalidArgument for the first finding of CheckStructure, even a warning: its message, and the id
// of its rule in parentheses.
absl::Status VerifyStructure(const Program& program, ProgramRef ref = {});

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_STRUCTURE_STRUCTURE_H_
