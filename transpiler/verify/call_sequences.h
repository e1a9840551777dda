// Layer 5: do all ranks make the same calls, in an order that cannot deadlock?
#ifndef WEFT_TRANSPILER_VERIFY_CALL_SEQUENCES_H_
#define WEFT_TRANSPILER_VERIFY_CALL_SEQUENCES_H_

#include "absl/types/span.h"
#include "proto/program.h"
#include "transpiler/verify/finding.h"

namespace weft {

// Checks the main programs of all ranks, in their order:
// - per ring the same sequence of collectives, with equal kind, reduction, element type, count and
//   root (W501), of variables of the same names (W505);
// - no two ranks order the collectives of several rings inconsistently (W502).
// Conditional blocks are compared as collectives are: the same conditions in the same places.
// O(ops of all programs).
void CheckCallSequences(absl::Span<const Program* const> mains, Findings* findings);

// The same of startup programs, and that no two of them join a ring as the same rank (W507).
void CheckStartupCallSequences(absl::Span<const Program* const> startups, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_CALL_SEQUENCES_H_
