// Sums, over the ranks of a ring, of tensors that are some rows of a taller one (SelectedRows).
#ifndef WEFT_EXECUTOR_ROWS_ALL_REDUCE_H_
#define WEFT_EXECUTOR_ROWS_ALL_REDUCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "executor/communicator.h"
#include "ops/merge_rows.h"
#include "ops/tensor.h"

namespace weft {

// c_allreduce_sum and c_allreduce_avg of SelectedRows, which Paddle's kernels do not take: the rows
// of all ranks, in the order of the ranks, rows of equal number added up in that order; numbers
// ascend. The average is that divided by the number of ranks. The result is the same on every rank,
// bit by bit. Ranks may have different numbers of rows, or none.
//
// Three all-gathers: of how many rows there are, then, unless there are none at all, of row numbers
// and of values, each padded to the rank that has most. n ranks with up to r rows of w bytes
// receive n r (w + 8) bytes each. Keeps its buffers from call to call: one object for each op of
// each rank.
class RowsAllReduce {
 public:
  // `call` is a kAllReduce of kSum or kAvg; `in`, which must be fp32 or fp64 rows, may be `out`.
  // Errors are those of Communicator::Run, and
  //   InvalidArgument  ranks hold rows of tensors of different heights, row sizes or element types
  absl::Status Run(const CollectiveCall& call, Communicator* communicator, const Tensor& in,
                   Tensor* out);

 private:
  // What a rank tells of its tensor, as int64.
  enum Field { kCount, kHeight, kRowSize, kElementType, kNumFields };

  int64_t FieldOf(int rank, Field field) const { return fields_[rank * kNumFields + field]; }
  absl::Status CheckAlike(const CollectiveCall& call, int nranks) const;

  std::vector<int64_t> fields_;   // by rank
  std::vector<int64_t> numbers_;  // of rows, by rank; -1 is padding
  Tensor values_;                 // of rows, by rank
  RowMerger merger_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_ROWS_ALL_REDUCE_H_
