// Layer 4: does a program on two devices keep to the memory of each?
#ifndef WEFT_TRANSPILER_VERIFIER_RACES_DEVICES_H_
#define WEFT_TRANSPILER_VERIFIER_RACES_DEVICES_H_

#include "ops/analysis/core/program_facts.h"
#include "proto/program.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Checks that every op of a program on two devices (ops/schema/device_ops.h) accesses variables in
// the memory of its device, that ops of blocks run where the op that has the block runs, and that
// every stream_wait names streams. CheckRaces checks that copies and ops wait for each other, also
// that nothing writes what a copy reads: variables have their memory to the end of a step, or until
// the stream on which their device computes has waited for all streams that access them. Other
// programs pass.
// O(arguments).
void CheckDevices(const ProgramFacts& facts, ProgramRef ref, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_RACES_DEVICES_H_
