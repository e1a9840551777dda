// Elements of a tensor that a tensor of indices along an axis selects.
#ifndef WEFT_OPS_CPU_AXIS_ELEMENTS_H_
#define WEFT_OPS_CPU_AXIS_ELEMENTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/strided_view.h"
#include "ops/op_kernel.h"

namespace weft {

// One element per index along an axis. ForEach(visit) calls visit(place, at, 1) in their order:
// `place` in the tensor, `at` among the indices.
struct AxisElements {
  template <typename Visit>
  void ForEach(Visit visit) const {
    ForEachIn(view, 0, visit);
  }
  // In any order, on the threads that kernels may use.
  template <typename Visit>
  void ForEachOnThreads(Visit visit) const {
    ForEachPartOfView(view,
                      [&](const View& part, int64_t begin) { ForEachIn(part, begin, visit); });
  }

  // `begin`: of the part, among the indices.
  template <typename Visit>
  void ForEachIn(const View& part, int64_t begin, Visit visit) const {
    ForEachBlock(part, [&](int64_t place, int64_t packed, const ViewBlock& block) {
      for (int64_t row = 0; row < block.rows; ++row) {
        const int64_t from = place + row * block.row_stride,
                      first = begin + packed + row * block.packed_row;
        for (int64_t k = 0; k < block.count; ++k) {
          visit(from + k * block.stride + indices[first + k] * stride, first + k, int64_t{1});
        }
      }
    });
  }

  View view;       // the positions of the indices, at 0 along the axis
  int64_t stride;  // of the axis
  std::vector<int64_t> indices;
};

// Reads Index in a step, for a tensor of `dims`:
//   absl::StatusOr<AxisElements> select(const KernelContext& ctx, const Dims& dims)
// Negative indices count from the end; InvalidArgument for others outside. The other dimensions of
// Index are at most those of the tensor. `axis` is one of its axes.
inline auto SelectAxisElements(OpKernel& op, int64_t axis) {
  return [=, index = op.in("Index")](const KernelContext& ctx,
                                     const Dims& dims) -> absl::StatusOr<AxisElements> {
    const size_t a = NormalizedAxis(axis, dims.size());
    WEFT_ASSIGN_OR_RETURN(auto indices, ReadIndicesFromEnd("Index", index(ctx), dims[a]));
    View view{index(ctx).dims(), RowMajorStrides(dims), 0};
    const int64_t stride = std::exchange(view.strides[a], 0);
    return AxisElements{std::move(view), stride, std::move(indices)};
  };
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_AXIS_ELEMENTS_H_
