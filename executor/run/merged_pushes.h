// The gradient that a parameter server makes of what workers push.
#ifndef WEFT_EXECUTOR_RUN_MERGED_PUSHES_H_
#define WEFT_EXECUTOR_RUN_MERGED_PUSHES_H_

#include <vector>

#include "absl/status/status.h"
#include "executor/plan/plan.h"
#include "executor/servers/server_message.h"
#include "ops/merge_rows.h"
#include "ops/tensor.h"

namespace weft {

// The sum, or the mean, of the gradients of the pushes, in their order, as `op`, which receives
// them, says. O(bytes of the pushes).
absl::Status MergePushes(const Plan::PlanOp& op, const std::vector<ServerMessage>& pushes,
                         RowMerger* merger, Tensor* out);

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_MERGED_PUSHES_H_
