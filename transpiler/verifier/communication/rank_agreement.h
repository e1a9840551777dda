// Layer 5: do ranks hold equal values where the program of each says that all ranks do?
#ifndef WEFT_TRANSPILER_VERIFIER_COMMUNICATION_RANK_AGREEMENT_H_
#define WEFT_TRANSPILER_VERIFIER_COMMUNICATION_RANK_AGREEMENT_H_

#include <set>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/feed_layout.h"
#include "proto/program_pair.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Checks the programs of all ranks, whose calls agree (call_sequences.h): each persistable variable
// that begins, or is after a step, equal on all ranks by the program of every rank has the same
// value by all of these programs, and the host sets variables alike before a step (W510). What a
// collective gives to all ranks is the same, whatever they gave. Startup programs are compared if
// all ranks have one. `feeds`: of all data variables (FeedLayoutsOf). O(arguments of all programs).
// `group`: RankValuesOptions::group; only the programs of these ranks are compared.
void CheckRanksAgree(absl::Span<const ConstProgramPair> ranks, const FeedLayouts& feeds,
                     absl::optional<int> nranks, Findings* findings,
                     const std::vector<int>& group = {});

// Checks that no variable of the main program begins with a value that every rank draws for itself
// (W510), but for parameters that an optimizer updates (W317) and distributed ones. `start`: what
// the startup program leaves. O(arguments).
void CheckStartIsEqual(const ConstProgramPair& programs, const StartupValues& start,
                       const std::set<std::string>& distributed_params, ProgramRef ref,
                       Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_COMMUNICATION_RANK_AGREEMENT_H_
