// Elementwise loops over operands of different shapes, and their gradients: sums over broadcast
// dimensions.
#ifndef WEFT_OPS_BROADCAST_H_
#define WEFT_OPS_BROADCAST_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/status/statusor.h"
#include "ops/columns.h"
#include "ops/schema/tensor_type.h"
#include "ops/threads.h"
#include "ops/vectorize.h"

namespace weft {

// Two operands aligned to each other: dims of equal rank, each pair of dimensions equal or one of
// them 1, and the dims of the result.
struct Broadcast {
  Dims x, y, out;
};

// Paddle's rule: the dims of the operand of lower rank align with those of the other one from
// `axis` on, or at the end for -1; trailing dimensions of 1 beyond that end are dropped. With equal
// ranks axis is -1 or 0. InvalidArgument if the shapes do not fit.
absl::StatusOr<Broadcast> AlignShapes(const Dims& x, const Dims& y, int64_t axis);

// Nested loops over the positions of a tensor, outermost dimension first, with the strides of two
// operands in elements; 0 along a dimension that broadcasts the operand. Neighbouring dimensions
// are merged if the strides allow it; dimensions of 1 are dropped.
struct LoopNest {
  struct Loop {
    int64_t extent = 1, a_stride = 0, b_stride = 0;
  };

  Dims extents, a_strides, b_strides;

  // Removes the innermost loop; one of a single pass if there is none.
  Loop TakeInnermost();
};

// The same with a loop of another length.
LoopNest WithExtent(LoopNest nest, size_t loop, int64_t extent);

// `a` and `b`, row-major, have the rank of `dims` and each of their dims is that of `dims` or 1.
LoopNest MakeLoopNest(const Dims& dims, const Dims& a, const Dims& b);

// Splits a nest into the loops along which b moves and those with stride 0, which sum a into b.
void SplitLoops(const LoopNest& nest, LoopNest* kept, LoopNest* summed);

// Calls body(offset in a, offset in b) for every position, in row-major order.
template <typename Body>
void Walk(const LoopNest& nest, Body&& body, size_t depth = 0, int64_t a = 0, int64_t b = 0) {
  if (depth == nest.extents.size()) return body(a, b);
  const int64_t extent = nest.extents[depth];
  const int64_t a_stride = nest.a_strides[depth], b_stride = nest.b_strides[depth];
  if (depth + 1 == nest.extents.size()) {
    for (int64_t i = 0; i < extent; ++i) body(a + i * a_stride, b + i * b_stride);
  } else {
    for (int64_t i = 0; i < extent; ++i) {
      Walk(nest, body, depth + 1, a + i * a_stride, b + i * b_stride);
    }
  }
}

// Walk, of `positions` in all, on the threads of the rank if they are many: each has a part of a
// loop.
template <typename Body>
void WalkParts(const LoopNest& nest, size_t loop, int64_t positions, const Body& body) {
  const bool is_divided = positions >= kMinParallelSize && KernelThreads() > 1;
  if (!is_divided || loop >= nest.extents.size()) return Walk(nest, body);
  // Results that are neighbours share lines of the cache.
  constexpr int64_t kMultiple = 8;
  ForEachPart(nest.extents[loop], kMultiple, [&](int64_t begin, int64_t end) {
    const Body local = body;  // not aliased by what it writes
    Walk(WithExtent(nest, loop, end - begin), local, 0, begin * nest.a_strides[loop],
         begin * nest.b_strides[loop]);
  });
}

// Calls visit(rows, n, a, a_row, a_step, b, b_row, b_step) for every pass of the two innermost
// loops, in row-major order: rows of n positions, the offsets of the first one, the strides from
// row to row, and those within a row, which are 0 or 1, as constants.
template <typename Visit>
void WalkRows(LoopNest nest, Visit&& visit) {
  const auto inner = nest.TakeInnermost(), outer = nest.TakeInnermost();
  constexpr std::integral_constant<int64_t, 0> kSame;
  constexpr std::integral_constant<int64_t, 1> kNext;
  const auto walk = [&](auto a_step, auto b_step) {
    Walk(nest, [&](int64_t a, int64_t b) {
      visit(outer.extent, inner.extent, a, outer.a_stride, a_step, b, outer.b_stride, b_step);
    });
  };
  // A loop along which no operand moves has one position.
  if (inner.a_stride == 0) return walk(kSame, kNext);
  inner.b_stride == 0 ? walk(kNext, kSame) : walk(kNext, kNext);
}

// out = f(x, y) for rows of n positions each, one after the other in `out`.
template <typename T, typename XStep, typename YStep, typename Out, typename F>
void MapRows(int64_t rows, int64_t n, const T* x, int64_t x_row, XStep x_step, const T* y,
             int64_t y_row, YStep y_step, Out* out, const F& f) {
  VectorizedFor<T>([=, &f] {
    const F local = f;  // not aliased by what it writes
    for (int64_t row = 0; row < rows; ++row) {
      const T *xs = x + row * x_row, *ys = y + row * y_row;
      Out* const to = out + row * n;
      WEFT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) to[i] = local(xs[i * x_step], ys[i * y_step]);
    }
  });
}

// Short rows of MapNest that make one.
inline int64_t RowsOfATile(int64_t n) {
  constexpr int64_t kTile = 256;
  return std::max<int64_t>(1, kTile / std::max<int64_t>(n, 1));
}

// out = f(x, y) for the positions of a nest.
template <typename T, typename Out, typename F>
void MapNest(const LoopNest& nest, const T* x, const T* y, Out* out, const F& f) {
  const auto map = [&](int64_t rows, int64_t n, int64_t xi, int64_t x_row, auto x_step, int64_t yi,
                       int64_t y_row, auto y_step) {
    const T *xs = x + xi, *ys = y + yi;
    Out* const to = out;
    out += rows * n;
    if constexpr (x_step == 1 && y_step == 1) {
      // Of short rows, of which one operand has but one, several together are a row.
      const int64_t together = std::min(rows, RowsOfATile(n));
      const bool repeats_x = x_row == 0;
      if (together > 1 && x_row + y_row == n && (repeats_x || y_row == 0)) {
        T tile[256];
        for (int64_t i = 0; i < together; ++i) std::copy_n(repeats_x ? xs : ys, n, tile + i * n);
        (repeats_x ? xs : ys) = tile;
        const int64_t wide_rows = rows / together, rest = rows % together;
        x_row *= together;
        y_row *= together;
        MapRows(wide_rows, n * together, xs, x_row, x_step, ys, y_row, y_step, to, f);
        MapRows(1, n * rest, xs + wide_rows * x_row, 0, x_step, ys + wide_rows * y_row, 0, y_step,
                to + (rows - rest) * n, f);
        return;
      }
    }
    MapRows(rows, n, xs, x_row, x_step, ys, y_row, y_step, to, f);
  };
  WalkRows(nest, map);
}

// out = f(x, y), elementwise. `out` may be x or y if that has the result's type and dims. Long
// loops run on the threads of the rank.
template <typename T, typename Out, typename F>
void MapBroadcast(const Broadcast& shapes, const T* x, const T* y, Out* out, F f) {
  const LoopNest nest = MakeLoopNest(shapes.out, shapes.x, shapes.y);
  const int64_t size = NumElements(shapes.out);
  if (size < kMinParallelSize || KernelThreads() == 1) return MapNest(nest, x, y, out, f);
  // Parts of the outermost loop have the same vectors as the whole.
  const int64_t extent = nest.extents[0], slice = size / extent;
  const int64_t multiple = nest.extents.size() == 1   ? 64
                           : nest.extents.size() == 2 ? RowsOfATile(slice)
                                                      : 1;
  ForEachPart(extent, multiple, [&](int64_t begin, int64_t end) {
    MapNest(WithExtent(nest, 0, end - begin), x + begin * nest.a_strides[0],
            y + begin * nest.b_strides[0], out + begin * slice, f);
  });
}

// out = big summed over the dimensions in which `out_dims` has 1, then divided by `divisor`: the
// gradient of a broadcast, and the mean. Sums are in double precision, in an order that depends on
// the dims alone; long ones run on the threads of the rank. `out` may be `big` if nothing is
// summed.
template <typename T>
void SumBroadcast(const T* big, const Dims& big_dims, const Dims& out_dims, double divisor,
                  T* out) {
  const int64_t size = NumElements(big_dims);
  LoopNest kept, summed;
  SplitLoops(MakeLoopNest(big_dims, big_dims, out_dims), &kept, &summed);
  if (summed.extents.empty()) {
    if (divisor != 1) {
      ForEach<T>(size, [=](int64_t i) { out[i] = static_cast<T>(big[i] / divisor); });
    } else if (out != big) {
      std::copy_n(big, size, out);
    }
    return;
  }
  // The innermost loops go over a matrix, of one column if the last one is summed. Those that are
  // left of the summed ones go over several such matrices.
  const bool has_columns = !kept.extents.empty() && kept.a_strides.back() == 1;
  const int64_t columns = has_columns ? kept.TakeInnermost().extent : 1;
  const LongRows matrix(summed.TakeInnermost().extent, columns);
  // Sums the columns [begin, end) of long rows into `sums`.
  const auto sum = [&](int64_t from, int64_t begin, int64_t end, double* sums) {
    std::fill_n(sums, end - begin, 0.0);
    Walk(summed, [&](int64_t offset, int64_t) {
      VectorizedFor<T>([&, first = big + from + offset] {
        const auto element = [first](int64_t i, int64_t) {
          return std::array<double, 1>{static_cast<double>(first[i])};
        };
        AddColumns<1>(matrix, begin, end, element, sums, 0);
      });
    });
  };
  const auto divide = [&](const double* sums, int64_t n, int64_t to) {
    for (int64_t i = 0; i < n; ++i) out[to + i] = static_cast<T>(sums[i] / divisor);
  };
  constexpr int64_t kBlock = 256, kMultiple = 16;
  const auto sum_matrix = [&](int64_t from, int64_t to) {
    double joined[LongRows::kLong];
    ForEachPartIfLong(size, matrix.width, kMultiple, [&](int64_t part, int64_t end) {
      if (matrix.width > columns) return sum(from, part, end, joined + part);
      double sums[kBlock];
      for (int64_t begin = part; begin < end; begin += kBlock) {
        const int64_t n = std::min(kBlock, end - begin);
        sum(from, begin, begin + n, sums);
        divide(sums, n, to + begin);
      }
    });
    if (matrix.width == columns) return;
    JoinColumns(matrix, joined);
    divide(joined, columns, to);
  };
  WalkParts(kept, 0, size, sum_matrix);
}

}  // namespace weft

#endif  // WEFT_OPS_BROADCAST_H_
