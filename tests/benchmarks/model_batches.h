// Batches of models of tests/data, for benchmarks.
#ifndef WEFT_TESTS_BENCHMARKS_MODEL_BATCHES_H_
#define WEFT_TESTS_BENCHMARKS_MODEL_BATCHES_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "executor/run/feeder.h"
#include "ops/tensor.h"
#include "proto/program.h"

namespace weft {

[[noreturn]] inline void Die(const std::string& what) {
  std::fprintf(stderr, "benchmark: error: %s\n", what.c_str());
  std::exit(1);
}

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  if (!value.ok()) Die(std::string(value.status().message()));
  return *std::move(value);
}

// The feeds of the model in the folder. In every step it is the first batch, with `rows` rows: its
// own, again and again.
FeedSource SameBatch(const std::string& folder, int64_t rows);

// Random feeds of a program that are the same in every step: numbers in [0, 1), and ids below 2,
// which every table and every set of labels has.
FeedSource RandomBatch(const Program& main, int64_t rows);

// Writes the first steps of a source as a file for weft run.
void WriteFeeds(const FeedSource& source, int64_t steps, const std::string& path);

}  // namespace weft

#endif  // WEFT_TESTS_BENCHMARKS_MODEL_BATCHES_H_
