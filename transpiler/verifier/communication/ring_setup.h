// Layers 3 and 5: do ranks set up their rings in the same way?
//
// A rank makes an id (an op with trait kRingSetup and an output) and joins a ring by it (one
// without outputs). Rank 0 sends the id to the other endpoints, which wait for it at theirs. The
// order of these ops on several ranks is that of calls (call_sequences.h).
#ifndef WEFT_TRANSPILER_VERIFIER_COMMUNICATION_RING_SETUP_H_
#define WEFT_TRANSPILER_VERIFIER_COMMUNICATION_RING_SETUP_H_

#include "absl/types/span.h"
#include "proto/program.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Checks one program (W307): an op makes each id before one ring is joined by it, as the same rank
// and over as many endpoints; the process has one rank in all rings, and joins each once.
// O(ops + endpoints).
void CheckRingSetup(const Program& program, ProgramRef ref, Findings* findings);

// Checks the startup programs of all ranks, in rank order: no two of them join a ring as the same
// rank (W507), the n-th joins it as rank n, and all name the same endpoints, each its own (W509).
// O(ops + endpoints).
void CheckRingSetups(absl::Span<const Program* const> startups, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_COMMUNICATION_RING_SETUP_H_
