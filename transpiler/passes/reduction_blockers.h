// What makes an all-reduce of the gradients, in every step, wrong.
#ifndef WEFT_TRANSPILER_PASSES_REDUCTION_BLOCKERS_H_
#define WEFT_TRANSPILER_PASSES_REDUCTION_BLOCKERS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/analysis/gradients.h"
#include "proto/program.h"

namespace weft {

// FailedPrecondition where no backward op names a gradient.
absl::Status RequireGradients(const GradientAnalysis& analysis);

// FailedPrecondition, naming op and variable, where an op compresses a gradient (dgc): it leaves
// zeros, and what ranks would have to exchange instead is not in the program. O(ops).
absl::Status RefuseCompressedGradients(const Program& program);

// FailedPrecondition, one of each kind at most, naming op and variable; empty where there are none:
//   - a gradient that is compressed
//   - a gradient that is no floating-point tensor
//   - a gradient that is accumulated over several steps, where it is not clear when the sum is
//     complete (GradientAnalysis::unclear)
//   - a gradient that is part of a larger buffer (coalesce_tensor)
//   - an optimizer that updates a replicated parameter of which no gradient is reduced
// O(arguments).
std::vector<absl::Status> ReductionBlockers(const Program& program,
                                            const GradientAnalysis& analysis,
                                            const std::set<std::string>& distributed_params);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_REDUCTION_BLOCKERS_H_
