// Finds the losses of a program that are sums over the batch.
#ifndef WEFT_OPS_ANALYSIS_VALUES_SUM_LOSSES_H_
#define WEFT_OPS_ANALYSIS_VALUES_SUM_LOSSES_H_

#include <set>
#include <string>

#include "ops/analysis/core/program_facts.h"
#include "proto/program.h"

namespace weft {

class BatchFlow;

// One device adds up the gradients of all samples for such a loss, so that nobody divides by the
// number of ranks. All other losses count as means.
struct SumLosses {
  // The gradients that ops of role backward|loss fill for them, by name.
  std::set<std::string> gradients;
  // Of a program without such ops: all losses. Else: no other loss has a gradient.
  bool are_all = false;

  bool any() const { return are_all || !gradients.empty(); }
  // Others have gradients, too.
  bool are_mixed() const { return !are_all && !gradients.empty(); }
};

bool IsSumLoss(const Program& program, const BatchFlow& flow, Symbol loss);

// O(ops) for each loss.
SumLosses FindSumLosses(const ProgramFacts& facts, const BatchFlow& flow);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_SUM_LOSSES_H_
