#include "ops/schema/row_sums.h"

namespace weft {

RowSums RowSumsOf(const Op& op) {
  static constexpr absl::string_view kSums[] = {"BatchSize@GRAD", "BatchSum@GRAD",
                                                "BatchSquareSum@GRAD"};
  static constexpr absl::string_view kStatistics[] = {"Means", "Scales"};
  static constexpr absl::string_view kSummaries[] = {"BatchSize", "BatchSum", "BatchSquareSum"};
  if (op.type() == "data_norm") return {kStatistics, kSummaries, "", false};
  if (op.type() != "data_norm_grad") return {};
  return {kSums, kStatistics, "X", op.IntAttr("slot_dim").value_or(-1) > 0};
}

}  // namespace weft
