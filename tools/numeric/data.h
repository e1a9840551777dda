// The data of a step, made up, for all ranks together.
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
  // The samples of a batch, as they are made, or in orders that add them up in another way.
  enum class Order { kAsMade, kReversed, kEvenOnesFirst };

  // What the program is given in each step. FailedPrecondition where ranks cannot get parts of it.
  static absl::StatusOr<NumericData> Of(const Program& program, const Plan& plan, int nranks,
                                        int64_t batch, ElementBudget* budget);

  // Refers to this object.
  FeedSource Source(Order order = Order::kAsMade) const;

 private:
  struct Feed {
    std::string name;
    TensorType type;  // of the whole batch
    bool is_split;    // over the ranks, by its first dimension
    absl::optional<int64_t> limit;
  };

  static absl::StatusOr<Tensor> Make(const Feed& feed, int64_t step, Order order);

  std::vector<Feed> feeds_;
};

// A tensor of block 0: variables of other blocks may have the names of its variables.
bool IsTensorOfRoot(const Plan& plan, size_t variable);

}  // namespace weft

#endif  // WEFT_TOOLS_NUMERIC_DATA_H_
