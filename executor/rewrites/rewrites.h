// Rewrites of a plan that make its steps faster.
#ifndef WEFT_EXECUTOR_REWRITES_REWRITES_H_
#define WEFT_EXECUTOR_REWRITES_REWRITES_H_

#include <vector>

#include "executor/plan/plan.h"
#include "ops/kernel.h"

namespace weft {

struct RewriteOptions {
  // Variables that are read or written between steps, besides persistable ones.
  std::vector<int> accessed;
  // Combine ops. Their names then stand for all of them, in errors and traces.
  bool fuses_ops = true;
};

// Images with their channels last (channels_last.h), sums and activations as the last step of
// another op (fuse_post_ops.h), updates of zeros that do not read them (updates_from_zero.h), and
// updates of several parameters in one op (merge_updates.h); without waits that others imply
// (implied_waits.h). Results are the same, but for rounding. O(plan).
void RewritePlan(const KernelTable& kernels, const RewriteOptions& options, Plan* plan);

}  // namespace weft

#endif  // WEFT_EXECUTOR_REWRITES_REWRITES_H_
