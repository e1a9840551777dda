// Gradient ops of the ops of random programs (tests/properties/random_program.h).
#ifndef WEFT_TESTS_PROPERTIES_RANDOM_GRADIENTS_H_
#define WEFT_TESTS_PROPERTIES_RANDOM_GRADIENTS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tests/properties/random_values.h"

namespace weft::testing {

struct GradientOp {
  struct Input {
    int value;
    bool is_gradient;  // the gradient of the value, not the value itself
  };
  std::string type;
  std::vector<std::pair<std::string, std::vector<Input>>> inputs;
  ValueSlots outputs;  // whose gradients; -1: none
  AttrValues attrs;
};

// The ops that compute the gradients of the inputs that need one; none if the op is not
// differentiable.
std::vector<GradientOp> Differentiate(absl::Span<const RandomValue> values, const ForwardOp& op);

// Whether they read the gradient of an output.
bool HasGradient(const std::string& op_type, absl::string_view output_slot);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTIES_RANDOM_GRADIENTS_H_
