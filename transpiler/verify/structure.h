// Layer 1: is the program well-formed?
//
// Program::Parse already refuses malformed bytes, blocks whose parents are missing or form a cycle,
// variables declared twice in a block, and sub-blocks that do not exist.
#ifndef WEFT_TRANSPILER_VERIFY_STRUCTURE_H_
#define WEFT_TRANSPILER_VERIFY_STRUCTURE_H_

#include "absl/status/status.h"
#include "proto/program.h"
#include "transpiler/verify/finding.h"

namespace weft {

// Checks that
// - every variable that an op names is declared in its block or an ancestor, or, for a gradient
//   block, in the forward block or its ancestors;
// - every registered op has the inputs and attributes that its schema requires, attributes of the
//   right type, and one variable in each slot for one;
// - every variable that an op reads has a value. It has one from the start if it is persistable, a
//   feed variable (need_check_feed) or no tensor (an array, a scope). Else an op before the reader
//   must write it: in its block, in an enclosing block before the op that runs the block, or, in a
//   loop, anywhere in the body. A branch counts as taken. A slice of a fused buffer (Trait::kAlias)
//   loses its value unless it is copied. The buffer has a value when all slices do, and a write to
//   it gives all slices a value. Synchronizations read and write nothing.
//   Paddle before 2.0 does not mark all feed variables. A variable that no op writes (except in
//   place) may be one if it has no gradient and its first reader is neither a backward op nor an
//   optimizer; else it has lost its producer. A possible feed variable is a warning if others are
//   marked, else it is not reported.
//
// Decodes attribute values of fused buffers only. O(arguments * block depth).
void CheckStructure(const Program& program, ProgramRef ref, Findings* findings);

// InvalidArgument for the first finding of CheckStructure, whatever its severity, except W106 and
// W107: what an op needs wherever it stands.
absl::Status VerifyStructure(const Program& program);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_STRUCTURE_H_
