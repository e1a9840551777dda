// Elementwise ops that run together, part by part.
#ifndef WEFT_EXECUTOR_STEP_POINTWISE_CHAINS_H_
#define WEFT_EXECUTOR_STEP_POINTWISE_CHAINS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "executor/plan/plan.h"
#include "executor/step/step_types.h"
#include "ops/bound_kernel.h"

namespace weft {

// Ops that follow one another directly on the compute stream, all of whose arguments have equally
// many elements. They may run one after the other on every part of these, so that the part of a
// value that one op writes is still in the cache when the next one reads it. Threads divide the
// parts.
struct PointwiseChain {
  int begin, end;  // instructions
  int64_t size;    // elements
};

// Chains of at least two ops, each of which reads what an earlier one of the chain reads or writes,
// on values of at least 8 parts. In their order. `kernels`: by op of the plan, bound. O(plan).
std::vector<PointwiseChain> FindPointwiseChains(const Plan& plan, const std::vector<bool>& in_block,
                                                const StepTypes& types,
                                                absl::Span<const BoundKernel> kernels);

// The elements of a part.
inline constexpr int64_t kPointwisePart = 8192;
static_assert(kPointwisePart % kPointwiseStep == 0);

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_POINTWISE_CHAINS_H_
