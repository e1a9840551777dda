// Sums and activations as the last step of the op before them.
#ifndef WEFT_EXECUTOR_REWRITES_FUSE_POST_OPS_H_
#define WEFT_EXECUTOR_REWRITES_FUSE_POST_OPS_H_

#include <vector>

#include "executor/plan/plan.h"

namespace weft {

// Lets an op carry out the ops that follow it directly on the compute stream, but for waits
// (KernelSpec::post_ops), if its kernel can,
// and if only they read its result: the bias of a product or a convolution, a sum with a tensor of
// the same shape, an activation. The values between them are no longer written. Ops that need only
// the type of such a value (Kernel::unread), as gradients of sums do, get the result of the last op
// instead. Variables in `accessed` and persistable ones are written as the program says.
//
// Only for fp32, and for bf16 where the kernel computes with it. Results differ at most in
// rounding. O(plan).
void FusePostOps(const std::vector<int>& accessed, Plan* plan);

}  // namespace weft

#endif  // WEFT_EXECUTOR_REWRITES_FUSE_POST_OPS_H_
