// Layer 5: do programs of several ranks decide alike whether a block with collectives runs?
#ifndef WEFT_TRANSPILER_VERIFY_CONDITION_EQUALITY_H_
#define WEFT_TRANSPILER_VERIFY_CONDITION_EQUALITY_H_

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/program.h"
#include "transpiler/verify/finding.h"

namespace weft {

// Checks that the programs of all ranks, which call the same collectives, compute the conditions of
// their blocks with collectives alike, in every step, from variables that begin equal (W506).
// `startups` may be empty: variables then count as beginning equal. O(arguments of all programs) if
// there are such blocks, else O(ops).
void CheckConditionsAreEqual(absl::Span<const Program* const> programs,
                             absl::Span<const Program* const> startups, absl::optional<int> nranks,
                             Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_CONDITION_EQUALITY_H_
