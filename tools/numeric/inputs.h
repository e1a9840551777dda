// Generated inputs of a numeric check: the data of the steps, and the values before the first step.
#ifndef WEFT_TOOLS_NUMERIC_INPUTS_H_
#define WEFT_TOOLS_NUMERIC_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "executor/plan/plan.h"
#include "executor/run/feeder.h"
#include "executor/run/runner.h"
#include "ops/tensor.h"
#include "proto/feed_layout.h"
#include "proto/program_pair.h"
#include "tools/numeric/values.h"

namespace weft {

// The data of all ranks together.
class NumericData {
 public:
  // The order of the samples of a batch: as generated, or in orders that sum them differently.
  enum class Order { kAsMade, kReversed, kEvenOnesFirst };

  // The feeds of the program in each step, for the layouts of its data variables (FeedLayoutsOf).
  // FailedPrecondition if they cannot be split over ranks.
  static absl::StatusOr<NumericData> Of(const Program& program, const Plan& plan, int nranks,
                                        int64_t batch, const FeedLayouts& layouts,
                                        ElementBudget* budget);

  // Refers to this object.
  FeedSource Source(Order order = Order::kAsMade) const;

 private:
  struct Feed {
    std::string name;
    TensorType type;  // of the global batch
    FeedLayout layout;
    absl::optional<int64_t> limit;
  };

  static absl::StatusOr<Tensor> Make(const Feed& feed, int64_t step, Order order);

  std::vector<Feed> feeds_;
  FeedLayouts layouts_;
};

// A tensor of block 0: variables of other blocks may have the same names.
bool IsTensorOfRoot(const Plan& plan, size_t variable);

// The variables of learning in a program, by name.
struct LearningVariables {
  // The parameter whose value each holds: a master weight has that of its parameter.
  std::map<std::string, std::string, std::less<>> parameters;
  std::set<std::string, std::less<>> optimizer_states, rates;
};
LearningVariables FindLearningVariables(const Program& program);

// Persistable tensors at the beginning of the first step. Parameters and learning rates are
// generated; others are what the startup program of the original leaves when it runs with `run`, or
// 0 without one.
absl::StatusOr<std::map<std::string, Tensor>> MakeStart(const ConstProgramPair& original,
                                                        RunOptions run, const Plan& plan,
                                                        const LearningVariables& variables,
                                                        const NumericData& data,
                                                        ElementBudget* budget);

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_INPUTS_H_
