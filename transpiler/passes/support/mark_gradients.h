// Marks the gradients of programs in which nothing says what they are.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_MARK_GRADIENTS_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_MARK_GRADIENTS_H_

#include "absl/status/statusor.h"
#include "proto/program.h"

namespace weft {

// Writes what append_backward would have written into a program whose gradients static.gradients
// has made, and apply_gradients has used: op_role_var on the last backward op that writes the
// gradient of an updated parameter, the role of a loss on the op that computes it, and an op with
// that role that fills its gradient with ones. Gradients are known by their names, w@GRAD and
// w@GRAD_0 of w.
//
// Returns whether it changed the program. It leaves programs alone in which an op has a gradient
// pair or fills the gradient of a loss, in which no op updates a parameter, and those whose losses
// have several elements: these count as sums. O(arguments).
absl::StatusOr<bool> MarkGradients(Program* program);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_MARK_GRADIENTS_H_
