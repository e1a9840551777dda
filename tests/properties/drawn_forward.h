// The forward pass of a random program (tests/properties/drawn_program.h).
#ifndef WEFT_TESTS_PROPERTIES_DRAWN_FORWARD_H_
#define WEFT_TESTS_PROPERTIES_DRAWN_FORWARD_H_

#include <vector>

#include "tests/properties/drawn_spec.h"
#include "tests/properties/drawn_values.h"

namespace weft::testing {

struct DrawnForward {
  std::vector<DrawnValue> values;
  std::vector<ForwardOp> ops;
  std::vector<int> losses;  // values
  bool has_chain = false;   // of states, along which a value takes steps
  std::vector<int> drawn;   // indices in DrawnOps() of the ops that fit
};

DrawnForward DrawForward(const DrawnSpec& spec);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTIES_DRAWN_FORWARD_H_
