// Ops that differentiate gradient ops, as penalties on gradients need them. Let an op compute
// out = f(x, y), and its gradient op dx and dy from x, y and dout. Given the gradients ddx and ddy
// of what comes of dx and dy, the second gradient op computes those of x, y and dout:
//   L = Σ(ddx dx) + Σ(ddy dy)    DX = ∂L/∂x    DY = ∂L/∂y    DDOut = ∂L/∂dout
// Where ddx or ddy is missing, it is 0.
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
    kQuotient,  // x / y, from out and dx in place of x and dout
    kView,      // the elements of x in other dimensions
    // Of one tensor, elementwise. `x` is x or out, whichever the gradient op reads; `dx` is the
    // gradient of that, none where the function is made of straight lines. `dout` may be dx.
    kFunction,
  };
  Kind kind;
  std::string op, type;  // its type, "mul_grad_grad", of an op "mul"
  // Slots; empty: none.
  std::string x, y, dout, ddx, ddy;  // inputs
  std::string dx, dy, ddout;         // outputs
};

const std::vector<SecondGradient>& SecondGradients();
// That of an op type; nullptr: it is none.
const SecondGradient* FindSecondGradient(absl::string_view type);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_SECOND_GRADIENTS_H_
