// Sums of rows with equal indices.
#ifndef WEFT_OPS_MERGE_ROWS_H_
#define WEFT_OPS_MERGE_ROWS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"

namespace weft {

// Rows of equal index.
struct RowGroups {
  std::vector<int64_t> rows;       // the index of each group, ascending
  std::vector<int64_t> begins;     // of each group in `positions`; at the end, the end of the last
  std::vector<int64_t> positions;  // of the rows of each group, ascending
};
// Skips rows with a negative index.
RowGroups GroupRows(absl::Span<const int64_t> rows);

// Keeps its buffer from call to call; not thread-safe.
class RowMerger {
 public:
  // Writes the rows of `values`, a dense tensor [rows.size(), ...] of fp32 or fp64, to `out`, as
  // rows of a tensor of `tall_dims`: each index in `rows` once, in ascending order, with the sum of
  // its rows, in their order. Skips rows with a negative index. `out` is not `values`.
  // Unimplemented for other element types. O(n log n + elements) for n rows; faster
  // where these are a few ascending runs, such as the sorted rows of several ranks.
  absl::Status Merge(absl::Span<const int64_t> rows, const Tensor& values, const Dims& tall_dims,
                     Tensor* out);
  // The same for a tensor that is_rows().
  absl::Status Merge(const Tensor& rows, Tensor* out);

 private:
  std::vector<std::pair<int64_t, int64_t>> order_;  // row index, position in `values`
};

}  // namespace weft

#endif  // WEFT_OPS_MERGE_ROWS_H_
