// Second gradient ops differentiate gradient ops, as penalties on gradients require. Let an op
// compute out = f(x, y), and its gradient op compute dx and dy from x, y and dout. Let a loss L
// have the gradients ddx by dx and ddy by dy. The second gradient op computes its gradients by x, y
// and dout:
//   L = Σ(ddx dx) + Σ(ddy dy)    DX = ∂L/∂x    DY = ∂L/∂y    DDOut = ∂L/∂dout
// A missing ddx or ddy is 0.
#ifndef WEFT_OPS_SCHEMA_SECOND_GRADIENTS_H_
#define WEFT_OPS_SCHEMA_SECOND_GRADIENTS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

struct SecondGradient {
  enum class Kind {
    kProduct,   // f is linear in x and in y
    kSum,       // f(x, y) is linear; x and DX, DY are not slots
    kQuotient,  // x / y; reads out and dx instead of x and dout
    kView,      // the elements of x in other dimensions
    // Elementwise, of one tensor. `x` is x or out, whichever the gradient op reads. `dx` is its
    // gradient; none if the function is piecewise linear. `dout` may be dx.
    kFunction,
  };
  Kind kind;
  std::string op, type;  // "mul" and "mul_grad_grad"
  // Slots; empty: none.
  std::string x, y, dout, ddx, ddy;  // inputs
  std::string dx, dy, ddout;         // outputs
  // As in OpSchema::Pir, but its name without it is that of the op, and _double_grad.
  std::string pir = "";
  std::string old_x = "";  // the name of slot x before Paddle 3, if it was another one
};

const std::vector<SecondGradient>& SecondGradients();
// nullptr if the type is not a second gradient op.
const SecondGradient* FindSecondGradient(absl::string_view type);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_SECOND_GRADIENTS_H_
