// Finds the losses of a program.
#ifndef WEFT_EXECUTOR_LOSSES_H_
#define WEFT_EXECUTOR_LOSSES_H_

#include <vector>

#include "proto/program.h"

namespace weft {

// The outputs, in op order, of the ops of the root block whose role has the loss bit but not the
// backward bit. If an op has several outputs, only those whose gradient is filled by an op with
// both bits, if there are any.
//
// Mixed precision multiplies the loss by a scale (that of check_finite_and_unscale or
// update_loss_scaling) and differentiates the product. The loss is then the value before the
// multiplication. O(ops).
std::vector<Symbol> FindLosses(const Program& program);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOSSES_H_
