// Elementwise loops over operands of different shapes, and their gradients: sums over broadcast
// dimensions.
#ifndef WEFT_OPS_BROADCAST_H_
#define WEFT_OPS_BROADCAST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/status/statusor.h"
#include "ops/schema/tensor_type.h"
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
  Dims extents, a_strides, b_strides;
};

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

// Calls run(n, a, a_stride, b, b_stride) for every pass of the innermost loop, in row-major order:
// n positions, the offsets of the first one, and strides that are 0 or 1, as constants.
template <typename Run>
void WalkRuns(LoopNest nest, Run&& run) {
  int64_t n = 1, a_stride = 0, b_stride = 0;
  if (!nest.extents.empty()) {
    n = nest.extents.back(), a_stride = nest.a_strides.back(), b_stride = nest.b_strides.back();
    nest.extents.pop_back();
  }
  constexpr std::integral_constant<int64_t, 0> kSame;
  constexpr std::integral_constant<int64_t, 1> kNext;
  const auto walk = [&](auto of_a, auto of_b) {
    Walk(nest, [&](int64_t a, int64_t b) { run(n, a, of_a, b, of_b); });
  };
  if (a_stride == 0) return b_stride == 0 ? walk(kSame, kSame) : walk(kSame, kNext);
  b_stride == 0 ? walk(kNext, kSame) : walk(kNext, kNext);
}

// out = f(x, y), elementwise. `out` may be x or y if that has the result's type and dims.
template <typename T, typename Out, typename F>
void MapBroadcast(const Broadcast& shapes, const T* x, const T* y, Out* out, F f) {
  WalkRuns(MakeLoopNest(shapes.out, shapes.x, shapes.y),
           [&](int64_t n, int64_t xi, auto x_stride, int64_t yi, auto y_stride) {
             const T *xs = x + xi, *ys = y + yi;
             Out* const to = out;
             ForEach<T>(n, [=](int64_t i) { to[i] = f(xs[i * x_stride], ys[i * y_stride]); });
             out += n;
           });
}

// out = big summed over the dimensions in which `out_dims` has 1, then divided by `divisor`: the
// gradient of a broadcast, and the mean. Sums are in double precision, in an order that depends on
// the dims alone. `out` may be `big` if nothing is summed.
template <typename T>
void SumBroadcast(const T* big, const Dims& big_dims, const Dims& out_dims, double divisor,
                  T* out) {
  LoopNest kept, summed;
  SplitLoops(MakeLoopNest(big_dims, big_dims, out_dims), &kept, &summed);
  // Sums contiguous elements in parallel, in blocks.
  int64_t width = 1;
  if (!kept.extents.empty() && kept.a_strides.back() == 1) {
    width = kept.extents.back();
    kept.extents.pop_back();
  }
  // Or the elements of a contiguous run as one sum.
  int64_t run = -1;  // may have no elements
  if (width == 1 && !summed.extents.empty() && summed.a_strides.back() == 1) {
    run = summed.extents.back();
    summed.extents.pop_back();
  }
  constexpr int64_t kBlock = 256;
  double sums[kBlock];
  Walk(kept, [&](int64_t from, int64_t to) {
    for (int64_t begin = 0; begin < width; begin += kBlock) {
      const int64_t n = std::min(kBlock, width - begin);
      std::fill_n(sums, n, 0.0);
      Walk(summed, [&](int64_t offset, int64_t) {
        const T* const row = big + from + begin + offset;
        double* const add_to = sums;
        if (run >= 0) {
          sums[0] += SumOf<T>(run, [=](int64_t i) { return static_cast<double>(row[i]); });
        } else {
          ForEach<T>(n, [=](int64_t i) { add_to[i] += static_cast<double>(row[i]); });
        }
      });
      for (int64_t i = 0; i < n; ++i) out[to + begin + i] = static_cast<T>(sums[i] / divisor);
    }
  });
}

}  // namespace weft

#endif  // WEFT_OPS_BROADCAST_H_
