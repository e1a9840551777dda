// Layer 4: is every write ordered with all other accesses to the same storage?
#ifndef WEFT_TRANSPILER_VERIFIER_RACES_RACES_H_
#define WEFT_TRANSPILER_VERIFIER_RACES_RACES_H_

#include "ops/analysis/core/program_facts.h"
#include "proto/program.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Reports data races between streams and redundant synchronizations (W401 to W408), by the rules of
// ops/analysis/streams/streams.h, and writes to shared memory that other layers do not see (W413,
// ops/analysis/core/shared_writes.h). A program on a single stream has no races. Skips undeclared
// names, so the program may be incomplete. A startup program of Paddle 3 that sets up no ring is
// one for CPUs, where one stream runs all ops. O(arguments + synchronizations * rings).
void CheckRaces(const ProgramFacts& facts, ProgramRef ref, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_RACES_RACES_H_
