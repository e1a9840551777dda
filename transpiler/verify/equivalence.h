// Layer 6: does the rewritten program compute what the original computes?
#ifndef WEFT_TRANSPILER_VERIFY_EQUIVALENCE_H_
#define WEFT_TRANSPILER_VERIFY_EQUIVALENCE_H_

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/rank_values.h"
#include "proto/program.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/rules.h"

namespace weft {

absl::Span<const Rule> EquivalenceRules();

struct ProgramsToCompare {
  const Program* main = nullptr;
  const Program* startup = nullptr;  // may be null
};

// Compares what a step makes of every persistable variable, as an expression over what the step is
// given: of `original` on one device that gets the batches of all ranks, and of `program` on all
// ranks (`options`: as for RankValues::Of; table and observer are not looked at). Equal up to
// re-association of sums, where gradients are means over ranks; under LocalSGD, up to averaging
// over the ranks, always or on a condition. Running statistics and other states may be own to each
// rank, parameters may not. What the startup programs make is compared where both are there.
// O(arguments of both programs).
void CheckEquivalence(const ProgramsToCompare& original, const ProgramsToCompare& rewritten,
                      const RankValuesOptions& options, ProgramRef ref, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_EQUIVALENCE_H_
