// Layer 5: are collectives in one order on all ranks where data alone orders ops?
#ifndef WEFT_TRANSPILER_VERIFIER_COMMUNICATION_DATA_ORDER_H_
#define WEFT_TRANSPILER_VERIFIER_COMMUNICATION_DATA_ORDER_H_

#include "ops/analysis/core/program_facts.h"
#include "proto/program.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Reports W518 for each op with collectives in its blocks, and for each collective after such an
// op, that the executor may run before the collective that the program has before it. The executor
// runs an op after those before it that write what it accesses, or that access what it writes; ops
// that communicate also one after the other in each block. So does Paddle 3 with PIR; its executor
// for ProgramDesc also runs all ops after a c_sync_comm_stream behind the collectives before it.
// O(arguments), for each block around them.
void CheckDataOrder(const ProgramFacts& facts, ProgramRef ref, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_COMMUNICATION_DATA_ORDER_H_
