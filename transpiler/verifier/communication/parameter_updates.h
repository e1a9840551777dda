// Layer 3, part 2: is every gradient summed once, divided once, and reduced before its update?
#ifndef WEFT_TRANSPILER_VERIFIER_COMMUNICATION_PARAMETER_UPDATES_H_
#define WEFT_TRANSPILER_VERIFIER_COMMUNICATION_PARAMETER_UPDATES_H_

#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/values/batch_edits.h"
#include "ops/analysis/values/rank_values.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Checks the updates of parameters (W310 to W317). `values`: of the program, by these options.
// `what_if`: of the same program, for findings that name an option; may be null. O(updates), and
// what WhatIfFlows needs where a parameter is a statistic that ranks do not reduce.
void CheckUpdates(const ProgramFacts& facts, const RankValuesOptions& options,
                  const RankValues& values, WhatIfFlows* what_if, ProgramRef ref,
                  Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_COMMUNICATION_PARAMETER_UPDATES_H_
