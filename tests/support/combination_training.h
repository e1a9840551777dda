// How two ranks train the programs of a pair of features, and how their reference does.
#ifndef WEFT_TESTS_SUPPORT_COMBINATION_TRAINING_H_
#define WEFT_TESTS_SUPPORT_COMBINATION_TRAINING_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/run/feeder.h"
#include "ops/kernel.h"
#include "tests/support/combination_programs.h"
#include "tests/support/rounding.h"
#include "tests/support/training_programs.h"

namespace weft::testing {

inline constexpr int kPairUpdates = 4;

using Numbers = std::vector<double>;
// Of parameters: by step, rank and parameter.
using Trained = std::vector<std::vector<std::vector<Numbers>>>;
// By update and parameter.
using Updates = std::vector<std::vector<Numbers>>;

// A batch of `whole` lasts `parts` steps, of which each takes a part.
FeedSource InTurn(const FeedSource& whole, int parts);
// What the steps of a pair take: a part of a batch each, if gradients are accumulated.
FeedSource FeedsOf(const FeaturePair& pair, const FeedSource& whole);

absl::StatusOr<Trained> Train(const TrainingPrograms& programs, const FeedSource& feeds,
                              int64_t steps, int ranks, const KernelTable* kernels = &CpuKernels());

// Where a server holds what no rank can fetch (null: there is none), or each rank has a part: the
// values after each step are those that a run of so many steps leaves, the same for all ranks.
absl::StatusOr<Trained> TrainAndSave(const TrainingPrograms& programs, const Program* server,
                                     const FeedSource& feeds, int64_t steps, int ranks);

using UpdatesRun = std::function<absl::StatusOr<Updates>(const TrainingInputs&)>;
absl::StatusOr<RoundingBounds> MeasureUpdates(const TrainingInputs& inputs,
                                              const UpdatesRun& train);

// kPairUpdates updates by one device with the whole batch, or for averages by one device for each
// rank, and means; and what rounding may change in them. With low rank, that one device compresses
// its gradients, too.
absl::StatusOr<RoundingBounds> Reference(const FeaturePair& pair);

// Of the last of `parts` steps each, where all ranks have the same parameters.
Updates UpdatesOf(const Trained& trained, int parts);

// How many numbers differ by more than rounding, of parameters that must be trained.
int NumDifferent(const Updates& found, const RoundingBounds& expected);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_COMBINATION_TRAINING_H_
