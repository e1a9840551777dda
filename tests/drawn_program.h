// Small training programs over all kinds of values along the batch (ops/schema/batch_relation.h):
// ops drawn from tests/drawn_ops.h on feeds that are split along one axis or another, or whole,
// parameters and states; a loss, its backward pass, and updates. For RapidCheck, which shrinks
// their descriptions field by field.
#ifndef WEFT_TESTS_DRAWN_PROGRAM_H_
#define WEFT_TESTS_DRAWN_PROGRAM_H_

#include <iosfwd>
#include <string>
#include <vector>

#include "executor/feeder.h"
#include "proto/program.h"
#include "rapidcheck.h"
#include "tests/drawn_spec.h"

namespace weft::testing {

struct DrawnProgram {
  Program main;
  Program startup;
  std::vector<std::string> losses;
  FeedSource feeds;        // of the whole batch, with layouts
  bool has_chain = false;  // of states: a value takes some steps along it
  std::vector<int> drawn;  // indices in DrawnOps() of the ops that fit
};

DrawnProgram BuildDrawn(const DrawnSpec& spec);

// The main program, for failing examples.
std::ostream& operator<<(std::ostream& out, const DrawnSpec& spec);

}  // namespace weft::testing

namespace rc {

template <>
struct Arbitrary<weft::testing::DrawnSpec> {
  static Gen<weft::testing::DrawnSpec> arbitrary();
};

}  // namespace rc

#endif  // WEFT_TESTS_DRAWN_PROGRAM_H_
