// The fourth layer of verification: is every two accesses to the same storage ordered?
#ifndef WEFT_TRANSPILER_VERIFY_RACES_H_
#define WEFT_TRANSPILER_VERIFY_RACES_H_

#include "absl/types/span.h"
#include "proto/program.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/rules.h"

namespace weft {

// W401 to W408.
absl::Span<const Rule> RaceRules();

// Looks for data races between streams, and for synchronizations that order nothing. What streams
// there are, what orders them and what shares storage: ops/analysis/streams.h. A program whose ops
// all run on one stream has no races. Names must be declared (layer kStructure). O(arguments +
// synchronizations * rings).
void CheckRaces(const Program& program, ProgramRef ref, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_RACES_H_
