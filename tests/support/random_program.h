// Training programs at random, for RapidCheck, which shrinks their descriptions field by field:
//
//   rc::check([](const TrainingSpec& spec) {
//     const TrainingPrograms programs = BuildPrograms(spec);
//     ...
//   });
#ifndef WEFT_TESTS_SUPPORT_RANDOM_PROGRAM_H_
#define WEFT_TESTS_SUPPORT_RANDOM_PROGRAM_H_

#include <iosfwd>

#include "rapidcheck.h"
#include "tests/support/training_programs.h"
#include "tests/support/training_spec.h"

namespace weft::testing {

// The main program, for failing examples.
std::ostream& operator<<(std::ostream& out, const TrainingSpec& spec);

}  // namespace weft::testing

namespace rc {

template <>
struct Arbitrary<weft::testing::TrainingSpec> {
  static Gen<weft::testing::TrainingSpec> arbitrary();
};

}  // namespace rc

#endif  // WEFT_TESTS_SUPPORT_RANDOM_PROGRAM_H_
