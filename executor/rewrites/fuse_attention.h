// Attention as one op.
#ifndef WEFT_EXECUTOR_REWRITES_FUSE_ATTENTION_H_
#define WEFT_EXECUTOR_REWRITES_FUSE_ATTENTION_H_

#include <vector>

#include "executor/plan/plan.h"
#include "ops/kernel.h"

namespace weft {

// Makes one op of
//
//   s = matmul(Q, K, transposed)      with alpha
//   s = scale(s)                      optional
//   s = elementwise_add(s, Mask)      optional
//   p = softmax(s)
//   p = dropout(p)                    optional
//   Out = matmul(p, V)
//
// and another one of their gradients, if there are any (ops/schema/attention_ops.h). The scores and
// the values between are no longer written: only ops of the two may read them. Of what dropout
// draws, the mask stays, and the order.
//
// In fp32, on the compute stream, outside of blocks; not if Mask has a gradient. Results differ at
// most in rounding. O(plan).
void FuseAttention(const KernelTable& kernels, const std::vector<int>& accessed, Plan* plan);

}  // namespace weft

#endif  // WEFT_EXECUTOR_REWRITES_FUSE_ATTENTION_H_
