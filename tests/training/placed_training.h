// Training of programs on two devices, for tests.
#ifndef WEFT_TESTS_TRAINING_PLACED_TRAINING_H_
#define WEFT_TESTS_TRAINING_PLACED_TRAINING_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/run/feeder.h"
#include "executor/run/runner.h"
#include "ops/tensor.h"
#include "proto/program.h"
#include "tests/support/training_programs.h"
#include "tests/support/training_spec.h"

namespace weft::testing {

// Three layers with biases.
TrainingSpec ThreeLayers();

// Of three layers, what places of ops differ for.
struct PlacedSpecs {
  TrainingSpec adam;
  TrainingSpec clipped;  // by the global norm, with momentum
  TrainingSpec merged;   // adam with gradients of two steps
  TrainingSpec lookups;  // of rows, with sgd
};
PlacedSpecs SpecsToPlace();

struct Trained {
  // Losses as "step/rank/index", and parameters by name.
  std::map<std::string, Tensor> values;
  ValueMemory memory;

  std::map<std::string, std::string> bits() const;
};

// Trains them from their startup program, or resumes as `inputs` say.
absl::StatusOr<Trained> TrainPrograms(const TrainingPrograms& programs, const RunOptions& options,
                                      RunInputs inputs = {});
// With the kernels of the host; so many steps, if `options` do not say.
inline constexpr int64_t kHostSteps = 4;
absl::StatusOr<Trained> TrainOnHost(const TrainingPrograms& programs, int ranks,
                                    RunOptions options = {}, RunInputs inputs = {});

// With fused gradient buffers.
inline constexpr char kDataParallel[] =
    "comm-init,broadcast-params,scale-loss-grad,grad-all-reduce{buckets=bytes}";

absl::Status Rewrite(const std::string& passes, int ranks, TrainingPrograms* programs);

// Every second batch has half of its rows.
FeedSource WithHalfBatches(FeedSource feeds);

int CountOps(const Program& program, absl::string_view type);

}  // namespace weft::testing

#endif  // WEFT_TESTS_TRAINING_PLACED_TRAINING_H_
