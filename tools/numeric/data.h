// Generated data of a step, for all ranks together.
#ifndef WEFT_TOOLS_NUMERIC_DATA_H_
#define WEFT_TOOLS_NUMERIC_DATA_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "executor/feeder.h"
#include "executor/plan.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"
#include "tools/numeric/values.h"

namespace weft {

class NumericData {
 public:
  // The order of the samples of a batch: as generated, or in orders that sum them differently.
  enum class Order { kAsMade, kReversed, kEvenOnesFirst };

  // The feeds of the program in each step. FailedPrecondition if they cannot be split over ranks.
  static absl::StatusOr<NumericData> Of(const Program& program, const Plan& plan, int nranks,
                                        int64_t batch, ElementBudget* budget);

  // Refers to this object.
  FeedSource Source(Order order = Order::kAsMade) const;

 private:
  struct Feed {
    std::string name;
    TensorType type;  // of the global batch
    bool is_split;    // over the ranks, along its first dimension
    absl::optional<int64_t> limit;
  };

  static absl::StatusOr<Tensor> Make(const Feed& feed, int64_t step, Order order);

  std::vector<Feed> feeds_;
};

// A tensor of block 0: variables of other blocks may have the same names.
bool IsTensorOfRoot(const Plan& plan, size_t variable);

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_DATA_H_
