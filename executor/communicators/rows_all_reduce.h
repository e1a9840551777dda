// All-reduce of row-sparse tensors (SelectedRows) over the ranks of a ring.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_ROWS_ALL_REDUCE_H_
#define WEFT_EXECUTOR_COMMUNICATORS_ROWS_ALL_REDUCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "executor/communicators/communicator.h"
#include "ops/merge_rows.h"
#include "ops/tensor.h"

namespace weft {

// c_allreduce_sum and c_allreduce_avg of SelectedRows, which Paddle's kernels do not support. The
// result has the rows of all ranks. Rows of the same index are added in rank order; indices are
// ascending. The average is the sum divided by the number of ranks. The result is bit-identical on
// every rank. Ranks may have different numbers of rows, or none.
//
// Makes three all-gathers: of the numbers of rows, then, unless there are no rows at all, of row
// indices and of values, each padded to the rank that has most rows. Indices travel as 32-bit
// integers if the height fits into one. n ranks with up to r rows of w bytes receive n r (w + 4)
// bytes each, or n r (w + 8) with more than 2^31 rows. Keeps its buffers from call to call: use one
// object for each op of each rank.
class RowsAllReduce {
 public:
  // `call` is a kAllReduce of kSum or kAvg; `in`, which must be fp32 or fp64 rows, may be `out`.
  // Errors are those of Communicator::Run, and
  //   InvalidArgument  ranks hold rows of tensors of different heights, row sizes or element types
  absl::Status Run(const CollectiveCall& call, Communicator* communicator, const Tensor& in,
                   Tensor* out);

 private:
  // What a rank sends about its tensor, as int64.
  enum Field { kCount, kHeight, kRowSize, kElementType, kNumFields };

  int64_t FieldOf(int rank, Field field) const { return fields_[rank * kNumFields + field]; }
  absl::Status CheckAlike(const CollectiveCall& call, int nranks) const;
  // Fills numbers_ with the indices of all ranks, `most` of each, as elements of type Index.
  template <typename Index>
  absl::Status GatherNumbers(const CollectiveCall& call, Communicator* communicator,
                             absl::Span<const int64_t> own, int64_t most,
                             std::vector<Index>* gathered);

  std::vector<int64_t> fields_;         // by rank
  std::vector<int64_t> numbers_;        // indices of rows, by rank; -1 is padding
  std::vector<int32_t> short_numbers_;  // the same, on their way
  Tensor values_;                       // values of rows, by rank
  RowMerger merger_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_ROWS_ALL_REDUCE_H_
