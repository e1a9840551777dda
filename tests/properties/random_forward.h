// The forward pass of a random program (tests/properties/random_program.h).
#ifndef WEFT_TESTS_PROPERTIES_RANDOM_FORWARD_H_
#define WEFT_TESTS_PROPERTIES_RANDOM_FORWARD_H_

#include <vector>

#include "tests/properties/random_spec.h"
#include "tests/properties/random_values.h"

namespace weft::testing {

struct RandomForward {
  std::vector<RandomValue> values;
  std::vector<ForwardOp> ops;
  std::vector<int> losses;  // values
  bool has_chain = false;   // of states, along which a value takes steps
  std::vector<int> drawn;   // indices in RandomOps() of the ops that fit
};

RandomForward DrawForward(const RandomSpec& spec);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTIES_RANDOM_FORWARD_H_
