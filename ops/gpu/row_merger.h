// Sums of rows with equal indices, on the device.
#ifndef WEFT_OPS_GPU_ROW_MERGER_H_
#define WEFT_OPS_GPU_ROW_MERGER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/reduce_loops.h"
#include "ops/kernel_util.h"
#include "ops/merge_rows.h"

namespace weft {

// Element i of the sums of groups of rows, each in the order of its rows.
template <typename T>
struct SumOfGroup {
  int64_t width;
  const int64_t *begins, *positions;
  const T* from;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    const int64_t group = i / width, k = i % width;
    T sum = from[positions[begins[group]] * width + k];
    for (int64_t at = begins[group] + 1; at < begins[group + 1]; ++at) {
      sum += from[positions[at] * width + k];
    }
    to[i] = sum;
  }
};

// RowMerger (ops/merge_rows.h) for the device.
class GpuRowMerger {
 public:
  // Out = the rows with each index once, in ascending order: rows of the same index are added.
  absl::Status Merge(const KernelContext& ctx, const Tensor& rows, Tensor* out) {
    const RowGroups groups = GroupRows(rows.rows());
    std::vector<int64_t> numbers = groups.begins;
    numbers.insert(numbers.end(), groups.positions.begin(), groups.positions.end());
    ScratchLike(rows, &numbers_)->Resize(DType::kInt64, {static_cast<int64_t>(numbers.size())});
    WEFT_RETURN_IF_ERROR(Upload(ctx, numbers.data(), numbers_.size(), numbers_.data<int64_t>()));
    out->ResizeRows(rows.dtype(), rows.TallDims(), static_cast<int64_t>(groups.rows.size()));
    std::copy(groups.rows.begin(), groups.rows.end(), out->mutable_rows().begin());
    const int64_t* const begins = numbers_.data<int64_t>();
    return ForFloatType("input X", rows, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return ForEach(ctx, out->size(),
                     SumOfGroup<T>{rows.row_size(), begins, begins + groups.begins.size(),
                                   rows.data<T>(), out->data<T>()});
    });
  }

 private:
  Tensor numbers_;  // begins and positions of groups
};

}  // namespace weft

#endif  // WEFT_OPS_GPU_ROW_MERGER_H_
