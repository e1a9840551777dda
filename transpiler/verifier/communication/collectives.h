// Layer 3, part 1: is every collective well-formed?
#ifndef WEFT_TRANSPILER_VERIFIER_COMMUNICATION_COLLECTIVES_H_
#define WEFT_TRANSPILER_VERIFIER_COMMUNICATION_COLLECTIVES_H_

#include "absl/types/optional.h"
#include "ops/analysis/core/program_facts.h"
#include "proto/program.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Checks rings, numbers of ranks, roots, element types and shapes of each collective of a program
// (W301 to W306, W308). `startup` may be null: all rings then count as set up. O(ops).
void CheckCollectives(const ProgramFacts& facts, const Program* startup, absl::optional<int> nranks,
                      ProgramRef ref, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_COMMUNICATION_COLLECTIVES_H_
