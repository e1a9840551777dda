// Layer 4: are any two accesses to the same storage, one of them a write, ordered?
#ifndef WEFT_TRANSPILER_VERIFY_RACES_H_
#define WEFT_TRANSPILER_VERIFY_RACES_H_

#include "proto/program.h"
#include "transpiler/verify/finding.h"

namespace weft {

// Reports data races between streams and redundant synchronizations (W401 to W408).
// ops/analysis/streams.h says which streams there are, what orders them and what shares storage. A
// program whose ops all run on one stream has no races. Names that are not declared are skipped:
// the program need not be whole. O(arguments + synchronizations * rings).
void CheckRaces(const Program& program, ProgramRef ref, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_RACES_H_
