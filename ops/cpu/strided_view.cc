#include "ops/cpu/strided_view.h"

namespace weft {

Dims RowMajorStrides(const Dims& dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= dims[d];
  }
  return strides;
}

View WholeView(const Dims& dims) { return {dims, RowMajorStrides(dims), 0}; }

View PaddedView(const Dims& x, const Dims& out, absl::Span<const int64_t> paddings) {
  View view{x, RowMajorStrides(out), 0};
  for (size_t d = 0; d < x.size(); ++d) view.offset += paddings[2 * d] * view.strides[d];
  return view;
}

View Simplify(const View& view) {
  View simple;
  simple.offset = view.offset;
  for (size_t d = 0; d < view.extents.size(); ++d) {
    const int64_t extent = view.extents[d], stride = view.strides[d];
    if (extent == 1) continue;
    if (!simple.extents.empty() && simple.strides.back() == stride * extent) {
      simple.extents.back() *= extent;
      simple.strides.back() = stride;
    } else {
      simple.extents.push_back(extent);
      simple.strides.push_back(stride);
    }
  }
  return simple;
}

bool IsPermutation(const View& view, int64_t size) {
  if (view.size() != size) return false;
  for (size_t d = 0; d < view.extents.size(); ++d) {
    if (view.extents[d] != 1 && view.strides[d] == 0) return false;
  }
  return true;
}

}  // namespace weft
