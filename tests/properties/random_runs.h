// Runs of random programs (tests/properties/random_program.h), on one device or on ranks.
#ifndef WEFT_TESTS_PROPERTIES_RANDOM_RUNS_H_
#define WEFT_TESTS_PROPERTIES_RANDOM_RUNS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/program.h"
#include "tests/properties/random_program.h"
#include "tests/properties/relation_checks.h"

namespace weft::testing {

// By step, variable and rank.
using Results = std::vector<std::map<std::string, std::vector<Values>>>;

// All variables that ops of the root block write, in the order in which they first do, and the
// states of inner blocks.
std::vector<std::string> Compared(const Program& program);

// The variables to compare of the drawn program, as `main` computes them: that program, or one that
// a pass has made of it.
absl::StatusOr<Results> RunRandomProgram(const RandomProgram& drawn, const Program& main,
                                         const Program& startup, int nranks, int steps);

// Whether rounding decides more than the values, or some are not finite.
bool HasLargeValues(const Results& results);

// Whether values are what rounding leaves of zeros, on whose sign a condition may depend.
bool HasRoundingErrors(const Results& results);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTIES_RANDOM_RUNS_H_
