// Layer 1: Does every variable that an op reads have a value?
#ifndef WEFT_TRANSPILER_VERIFIER_STRUCTURE_UNINITIALIZED_READS_H_
#define WEFT_TRANSPILER_VERIFIER_STRUCTURE_UNINITIALIZED_READS_H_

#include "absl/types/optional.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// A variable has a value from the start if it is persistable, a feed variable (need_check_feed) or
// no tensor (an array, a scope). Else an op before the reader must write it: in its block, in an
// enclosing block before the op that runs the block, or, in a loop, anywhere in the body. A branch
// counts as taken; a warning names the first reader that may run where it is not, or where a loop
// runs zero times (FindUnguardedReads). A slice of a fused buffer (Trait::kAlias) loses its value
// unless it is copied. The buffer has a value when all slices do, and a write to it gives all
// slices a value. An op that gives memory without values (empty) takes the value of any variable,
// until another op writes it, also that of a persistable variable for the next step. Ops that read
// dims alone, or keep what they do not write, may read such a variable, and so may a broadcast on
// ranks other than its root: if `rank` alone runs the program. Synchronizations read and write
// nothing.
//
// Paddle before 2.0 does not mark all feed variables. A variable that no op writes (except in
// place) may be one if it has no gradient and its first reader is neither a backward op nor an
// optimizer; else it has lost its producer. A possible feed variable counts as data (FindData): a
// warning if others are marked, else it is not reported.
//
// Decodes attribute values of fused buffers only. O(arguments * block depth).
void CheckUninitializedReads(const Program& program, ProgramRef ref, Findings* findings,
                             absl::optional<int> rank = absl::nullopt);

// Checks that the startup program keeps what it initializes for the main program: that it declares
// the persistable variables of the main program as persistable, too (W108), and that the main
// program does not read what it leaves without values (W107, as a file may give them).
// O(arguments).
void CheckStartupKeeps(const ConstProgramPair& programs, ProgramRef ref, Findings* findings,
                       absl::optional<int> rank = absl::nullopt);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_STRUCTURE_UNINITIALIZED_READS_H_
