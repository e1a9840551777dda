// Training programs as Paddle writes them, made from a description. They are small: the executor
// runs a step in a millisecond.
#ifndef WEFT_TESTS_SUPPORT_TRAINING_PROGRAMS_H_
#define WEFT_TESTS_SUPPORT_TRAINING_PROGRAMS_H_

#include <string>
#include <vector>

#include "executor/run/feeder.h"
#include "proto/program.h"
#include "tests/support/training_spec.h"

namespace weft::testing {

// The batch of all feeds: splits over 2, 3 and 4 ranks.
inline constexpr int kBatch = 12;

struct TrainingPrograms {
  Program main;
  Program startup;
  std::vector<std::string> losses;
  std::vector<std::string> parameters;
  // All of the same values in every call.
  FeedSource feeds;
};

TrainingPrograms BuildPrograms(const TrainingSpec& spec);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_TRAINING_PROGRAMS_H_
