// Gradients that no op names: static.gradients, unlike append_backward, marks neither them nor the
// loss.
#ifndef WEFT_OPS_ANALYSIS_TRAINING_MARK_GRADIENTS_H_
#define WEFT_OPS_ANALYSIS_TRAINING_MARK_GRADIENTS_H_

#include "absl/status/statusor.h"
#include "proto/program.h"

namespace weft {

// If optimizers update parameters, and no backward op names a pair of parameter and gradient: gives
// the ops of the root block the marks that append_backward gives them. Returns whether it did.
//
//  - The last backward op that writes a gradient of a parameter names both (op_role_var). By data:
//    the op follows from the gradient of a loss, and has output S@GRAD for an input S that is the
//    parameter, or adds such gradients.
//  - The op that fills the gradient of a variable with ones begins the backward pass of a loss, and
//    the op that makes the variable makes the loss (op_role), unless another loss follows from what
//    the former begins, as that of a penalty.
//
// O(arguments); with several losses, for each.
absl::StatusOr<bool> MarkGradients(Program* program);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TRAINING_MARK_GRADIENTS_H_
