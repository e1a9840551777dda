// Layer kBatch: what makes a step on many ranks differ from one device, although no rank does
// anything wrong.
#ifndef WEFT_TRANSPILER_VERIFIER_BATCH_BATCH_H_
#define WEFT_TRANSPILER_VERIFIER_BATCH_BATCH_H_

#include <string>
#include <vector>

#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/values/batch_edits.h"
#include "ops/analysis/values/batch_flow.h"
#include "proto/program_pair.h"
#include "proto/setting.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// How BatchFlow follows the main program. Without feeds in the setting: as the program suggests.
BatchFlowOptions BatchOptionsOf(const ConstProgramPair& programs, const Setting& setting);

struct BatchCheckOptions {
  // The user wants gradients summed, whatever the losses are.
  bool sums_are_wanted = false;
  // Variables that the user reads after each step, besides those that fetch ops name.
  std::vector<std::string> fetched;
};

// Whether a loss is a sum over the batch, or may be one, because the program marks none.
bool LossMayBeASum(const ProgramFacts& main, const BatchFlow& flow);

// W701 to W714, and W716 to W718, one for each cause. `what_if`: of the same program; findings name
// the options that would mend what they are about.
void CheckBatch(const ProgramFacts& main, const BatchFlow& flow, const BatchCheckOptions& options,
                WhatIfFlows* what_if, ProgramRef ref, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_BATCH_BATCH_H_
