// Layer 4: does Paddle's executor keep the order of accesses to memory that has several names?
#ifndef WEFT_TRANSPILER_VERIFIER_RACES_BUFFER_ORDER_H_
#define WEFT_TRANSPILER_VERIFIER_RACES_BUFFER_ORDER_H_

#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/streams/streams.h"
#include "proto/program.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Reports W412 for accesses to a fused buffer and to its parts of which Paddle's executor may run
// the second before the first (ops/analysis/core/fused_buffers.h): one for each buffer and block.
// Likewise for a write under one of two names that share memory, and a read under the other
// (FindSharedWrites), one for each pair.
// If that is the executor by which the program is judged (kByNames), both are W414, an error.
// Of a program that was read from a ProgramDesc, as in PIR values do not share memory, and that has
// no ops of Weft's own which copy between devices or to servers. `startup` may make buffers; null:
// there is none. O(arguments), see there.
void CheckBufferOrder(const ProgramFacts& facts, const Program* startup, OpOrder order,
                      ProgramRef ref, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_RACES_BUFFER_ORDER_H_
