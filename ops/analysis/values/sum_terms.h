// Finds means that a program adds to sums over the batch.
#ifndef WEFT_OPS_ANALYSIS_VALUES_SUM_TERMS_H_
#define WEFT_OPS_ANALYSIS_VALUES_SUM_TERMS_H_

#include "absl/container/flat_hash_map.h"
#include "ops/analysis/values/batch_flow.h"
#include "proto/program.h"

namespace weft {

// Variables that hold the n-th part, for n ranks, of a mean over the batch or of a value that all
// ranks have, and the ops that divide it: "part = mean / n; loss = part + sum". Added up over the
// ranks, the part is the mean, as the sum is that of one device, which adds the mean itself. Only
// ops that say that they divide (attribute nranks), in the root block and the forward pass, and
// only if all that reads the part is such sums, and gradient ops of them. O(arguments).
absl::flat_hash_map<VarId, OpId> FindSumTerms(const Program& program, const BatchFlow& flow);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_SUM_TERMS_H_
