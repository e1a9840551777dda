// What a loss divides by that is no mean over the batch.
#ifndef WEFT_TRANSPILER_PASSES_UPDATES_BATCH_DIVISOR_H_
#define WEFT_TRANSPILER_PASSES_UPDATES_BATCH_DIVISOR_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "proto/feed_layout.h"
#include "proto/program.h"

namespace weft {

// The loss is a sum over the batch divided by a number of the batch, such as that of its tokens
// which count. Of k batches together, both are sums over the batches. No gradient flows through the
// number, so with d(i) for that of batch i, the gradient of the whole is
//
//   sum of d(i) times the gradient of batch i, over f(sum of c(i)),   where d(i) = f(c(i))
struct BatchDivisor {
  VarId count;            // c: a sum over the batch
  VarId divisor;          // d
  std::vector<OpId> ops;  // f: from c to d, in order; with ops that only constants go into
  OpId seed;              // fills the gradient of the loss
};

// None: all losses are means over the batch, or do not depend on it. FailedPrecondition, with what
// to do, for any other loss that has no such divisor: a term that is divided by something else, or
// not at all; several losses; a divisor that has another type than the loss. O(arguments) for a few
// walks.
absl::StatusOr<absl::optional<BatchDivisor>> FindBatchDivisor(const Program& main,
                                                              const FeedLayouts& feeds);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_UPDATES_BATCH_DIVISOR_H_
