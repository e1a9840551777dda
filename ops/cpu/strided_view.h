// A view of a tensor: its elements in another order, a subset, or repeated: transposed, sliced,
// broadcast.
#ifndef WEFT_OPS_CPU_STRIDED_VIEW_H_
#define WEFT_OPS_CPU_STRIDED_VIEW_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/types/span.h"
#include "ops/schema/tensor_type.h"
#include "ops/threads.h"
#include "ops/vectorize.h"

namespace weft {

// Position (i0, i1, ...) of the view, 0 <= i < extents, is element offset + Σ i strides of the
// tensor.
struct View {
  Dims extents, strides;
  int64_t offset = 0;

  int64_t size() const { return NumElements(extents); }
};

// Whether the view has every element of a tensor of that size once. Of a view that repeats elements
// along strides of 0 alone.
bool IsPermutation(const View& view, int64_t size);

// Strides of a row-major tensor.
Dims RowMajorStrides(const Dims& dims);
// The whole tensor in its order.
View WholeView(const Dims& dims);

// The position of X in a tensor of dims `out`, which has paddings[2 d] elements before it, along
// dimension d.
View PaddedView(const Dims& x, const Dims& out, absl::Span<const int64_t> paddings);

// Without dimensions of size 1, and with neighbouring dimensions merged where their strides allow
// it.
View Simplify(const View& view);

// Two loops over elements of a view: `rows` times `count`. The strides in the tensor are those of
// the view; packed, the elements of a row are neighbours, and rows are `packed_row` apart.
struct ViewBlock {
  int64_t rows, count;
  int64_t row_stride, stride;  // in the tensor
  int64_t packed_row;
};

// Calls visit(index in the tensor, index when packed, block) for blocks of elements that make up
// the view. Where neighbours in the tensor are no neighbours in the view, they are in different
// rows.
template <typename Visit>
void ForEachBlock(const View& whole, Visit visit) {
  if (whole.size() == 0) return;
  View view = Simplify(whole);
  Dims packed = RowMajorStrides(view.extents);
  const auto take = [&](size_t d, int64_t* extent, int64_t* stride) {
    *extent = view.extents[d];
    *stride = view.strides[d];
    view.extents.erase(view.extents.begin() + d);
    view.strides.erase(view.strides.begin() + d);
    packed.erase(packed.begin() + d);
  };
  ViewBlock block = {1, 1, 0, 1, 0};
  if (!view.extents.empty()) take(view.extents.size() - 1, &block.count, &block.stride);
  if (!view.extents.empty()) {
    size_t d = view.extents.size() - 1;
    if (block.stride != 1) {
      const auto next = std::find(view.strides.begin(), view.strides.end(), 1);
      if (next != view.strides.end()) d = next - view.strides.begin();
    }
    block.packed_row = packed[d];
    take(d, &block.rows, &block.row_stride);
  }
  Dims at(view.extents.size(), 0);
  for (int64_t place = view.offset, packed_place = 0;;) {
    visit(place, packed_place, block);
    size_t d = at.size();
    for (; d > 0; --d) {
      place += view.strides[d - 1];
      packed_place += packed[d - 1];
      if (++at[d - 1] < view.extents[d - 1]) break;
      place -= at[d - 1] * view.strides[d - 1];
      packed_place -= at[d - 1] * packed[d - 1];
      at[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

// to[row * to_row + i] = from[row + i * from_step], for `rows` times `count` elements; in tiles, so
// that both sides are read and written in lines.
template <typename T>
void CopyTransposed(int64_t rows, int64_t count, const T* from, int64_t from_step, T* to,
                    int64_t to_row) {
  constexpr int64_t kTile = 16;
  for (int64_t row = 0; row < rows; row += kTile) {
    const int64_t tile_rows = std::min(kTile, rows - row);
    for (int64_t i = 0; i < count; i += kTile) {
      const int64_t n = std::min(kTile, count - i);
      const T* const source = from + row + i * from_step;
      T* const target = to + row * to_row + i;
      if (tile_rows == kTile && n == kTile) {
        T tile[kTile][kTile];
        for (int64_t k = 0; k < kTile; ++k) {
          for (int64_t r = 0; r < kTile; ++r) tile[r][k] = source[r + k * from_step];
        }
        for (int64_t r = 0; r < kTile; ++r) std::copy_n(tile[r], kTile, target + r * to_row);
      } else {
        for (int64_t r = 0; r < tile_rows; ++r) {
          for (int64_t k = 0; k < n; ++k) target[r * to_row + k] = source[r + k * from_step];
        }
      }
    }
  }
}

// to[row * to_row + i * to_step] = from[row * from_row + i * from_step].
template <typename T, typename FromStep, typename ToStep>
void CopyRows(int64_t rows, int64_t count, const T* from, int64_t from_row, FromStep from_step,
              T* to, int64_t to_row, ToStep to_step) {
  Vectorized([=] {
    for (int64_t row = 0; row < rows; ++row) {
      const T* const source = from + row * from_row;
      T* const target = to + row * to_row;
      WEFT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < count; ++i) target[i * to_step] = source[i * from_step];
    }
  });
}

// Calls run(part, begin) for parts of a view along its first dimension, on the threads that kernels
// may use. `begin`: where the elements of the part are when packed.
template <typename Run>
void ForEachPartOfView(const View& view, Run run) {
  if (view.size() < kMinParallelSize || KernelThreads() == 1) return run(view, 0);
  const View whole = Simplify(view);
  if (whole.extents.empty()) return run(view, 0);
  const int64_t step = whole.size() / whole.extents[0];
  ForEachPart(whole.extents[0], 1, [&](int64_t begin, int64_t end) {
    View part = whole;
    part.extents[0] = end - begin;
    part.offset += begin * part.strides[0];
    run(part, begin * step);
  });
}

template <typename T>
void ReadOnOneThread(const View& view, const T* tensor, T* to) {
  constexpr std::integral_constant<int64_t, 1> kNext;
  ForEachBlock(view, [=](int64_t place, int64_t packed, const ViewBlock& b) {
    if (b.stride == 1) {
      CopyRows(b.rows, b.count, tensor + place, b.row_stride, kNext, to + packed, b.packed_row,
               kNext);
    } else if (b.row_stride == 1) {
      CopyTransposed(b.rows, b.count, tensor + place, b.stride, to + packed, b.packed_row);
    } else {
      CopyRows(b.rows, b.count, tensor + place, b.row_stride, b.stride, to + packed, b.packed_row,
               kNext);
    }
  });
}

template <typename T>
void WriteOnOneThread(const View& view, const T* from, T* tensor) {
  constexpr std::integral_constant<int64_t, 1> kNext;
  ForEachBlock(view, [=](int64_t place, int64_t packed, const ViewBlock& b) {
    if (b.stride == 1) {
      CopyRows(b.rows, b.count, from + packed, b.packed_row, kNext, tensor + place, b.row_stride,
               kNext);
    } else if (b.row_stride == 1) {
      CopyTransposed(b.count, b.rows, from + packed, b.packed_row, tensor + place, b.stride);
    } else {
      CopyRows(b.rows, b.count, from + packed, b.packed_row, kNext, tensor + place, b.row_stride,
               b.stride);
    }
  });
}

// to = the elements of the view, row-major.
template <typename T>
void ReadView(const View& view, const T* tensor, T* to) {
  ForEachPartOfView(
      view, [=](const View& part, int64_t begin) { ReadOnOneThread(part, tensor, to + begin); });
}

// The elements of the view = from. No element is repeated.
template <typename T>
void WriteView(const View& view, const T* from, T* tensor) {
  ForEachPartOfView(
      view, [=](const View& part, int64_t begin) { WriteOnOneThread(part, from + begin, tensor); });
}

// The elements of the view += from: the gradient of reading.
template <typename T>
void AddToView(const View& view, const T* from, T* tensor) {
  ForEachBlock(view, [=](int64_t place, int64_t packed, const ViewBlock& b) {
    for (int64_t row = 0; row < b.rows; ++row) {
      const T* const source = from + packed + row * b.packed_row;
      T* const target = tensor + place + row * b.row_stride;
      for (int64_t i = 0; i < b.count; ++i) target[i * b.stride] += source[i];
    }
  });
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_STRIDED_VIEW_H_
