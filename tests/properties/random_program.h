// Small training programs over all kinds of values along the batch (ops/schema/batch_relation.h):
// ops drawn from tests/properties/random_ops.h on feeds that are split along one axis or another,
// or whole, parameters and states; a loss, its backward pass, and updates; feed and fetch ops.
#ifndef WEFT_TESTS_PROPERTIES_RANDOM_PROGRAM_H_
#define WEFT_TESTS_PROPERTIES_RANDOM_PROGRAM_H_

#include <iosfwd>
#include <string>
#include <vector>

#include "executor/run/feeder.h"
#include "proto/program.h"
#include "tests/properties/random_spec.h"

namespace weft::testing {

// What a fetch op hands out.
struct RandomFetch {
  std::string variable;
  std::string copy;  // has that value after the step
};

struct RandomProgram {
  Program main;
  Program startup;
  std::vector<std::string> losses;
  FeedSource feeds;  // of the whole batch, with layouts
  std::vector<RandomFetch> fetches;
  bool has_chain = false;  // of states: a value takes some steps along it
  std::vector<int> drawn;  // indices in RandomOps() of the ops that fit
};

RandomProgram BuildRandomProgram(const RandomSpec& spec);

// The main program, for failing examples.
std::ostream& operator<<(std::ostream& out, const RandomSpec& spec);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTIES_RANDOM_PROGRAM_H_
