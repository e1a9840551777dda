// The median of the elements along some dimensions.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "ops/broadcast.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/reduced_dims.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The elements of which each median is taken, in the order of their positions, one group after the
// other.
template <typename T>
std::vector<T> Grouped(const T* xs, const Dims& dims, const Dims& kept) {
  const int64_t groups = NumElements(kept), size = groups == 0 ? 0 : NumElements(dims) / groups;
  std::vector<T> grouped(groups * size);
  std::vector<int64_t> filled(groups, 0);
  Walk(MakeLoopNest(dims, dims, kept),
       [&](int64_t i, int64_t group) { grouped[group * size + filled[group]++] = xs[i]; });
  return grouped;
}

// The positions of the two middle elements, which are one if their number is odd; the first NaN, if
// NaN counts and there is one; -1 if no element counts. Of equal elements, the first is the lower.
template <typename T>
std::array<int64_t, 2> Middle(const T* group, int64_t size, bool ignores_nan,
                              std::vector<int64_t>* order) {
  order->clear();
  for (int64_t i = 0; i < size; ++i) {
    if (!std::isnan(group[i])) {
      order->push_back(i);
    } else if (!ignores_nan) {
      return {i, i};
    }
  }
  if (order->empty()) return {-1, -1};
  const auto less = [group](int64_t i, int64_t j) {
    return group[i] < group[j] || (group[i] == group[j] && i < j);
  };
  const int64_t count = order->size();
  const auto lower = order->begin() + (count - 1) / 2;
  std::nth_element(order->begin(), lower, order->end(), less);
  if (count % 2 == 1) return {*lower, *lower};
  return {*lower, *std::min_element(lower + 1, order->end(), less)};
}

// Out = the mean of the middle elements, or the lower one; NaN if no element counts.
absl::StatusOr<Kernel> Median(OpKernel op, bool ignores_nan) {
  const In x = op.in("X");
  const Out out = op.out("Out"), index = op.out("MedianIndex");
  const bool is_mean = op.attrs().String("mode") == "avg";
  return op.Make(
      Floats(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        const Dims dims = x(ctx).dims(), kept = KeptDims(attrs, dims);
        const int64_t groups = NumElements(kept), size = groups == 0 ? 0 : x(ctx).size() / groups;
        if (groups > 0 && size == 0) return absl::InvalidArgumentError("input X: has no elements");
        const std::vector<T> grouped = Grouped(x.data<T>(ctx), dims, kept);
        std::vector<int64_t> order;
        int64_t* places = index.data_or_null<int64_t>(ctx);
        for (int64_t g = 0; g < groups; ++g) {
          const T* group = grouped.data() + g * size;
          const auto [lower, upper] = Middle(group, size, ignores_nan, &order);
          out.data<T>(ctx)[g] = lower < 0 ? std::numeric_limits<T>::quiet_NaN()
                                : is_mean ? (group[lower] + group[upper]) / 2
                                          : group[lower];
          if (places == nullptr) continue;
          *places++ = lower;
          if (is_mean) *places++ = upper;
        }
        return absl::OkStatus();
      });
}

// Of a mean: X@GRAD = Out@GRAD in equal parts for the elements that equal Out, and else, and where
// the op does not read Out, as before Paddle 3.2, for the two middle ones. Otherwise, Out@GRAD for
// the element of MedianIndex.
absl::StatusOr<Kernel> MedianGrad(OpKernel op) {
  const In x = op.in("X"), out = op.in("Out"), index = op.in("MedianIndex");
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const bool is_mean = op.attrs().String("mode") == "avg";
  return op.Make(Floats(dout), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims(), kept = KeptDims(attrs, dims);
    const LoopNest nest = MakeLoopNest(dims, dims, kept);
    const T *xs = x.data<T>(ctx), *outs = out.data_or_null<T>(ctx), *douts = dout.data<T>(ctx);
    const int64_t* places = index.data<int64_t>(ctx);
    const auto is_out = [=](int64_t i, int64_t group) {
      return xs[i] == outs[group] || (std::isnan(xs[i]) && std::isnan(outs[group]));
    };
    const int64_t groups = NumElements(kept);
    std::vector<int64_t> equal(groups, 0), passed(groups, 0);
    if (is_mean && outs != nullptr) {
      Walk(nest, [&](int64_t i, int64_t group) { equal[group] += is_out(i, group); });
    }
    T* to = dx.data<T>(ctx);
    Walk(nest, [&](int64_t i, int64_t group) {
      const int64_t place = passed[group]++;
      if (!is_mean) {
        to[i] = place == places[group] ? douts[group] : T(0);
      } else if (equal[group] > 0) {
        to[i] = is_out(i, group) ? douts[group] / equal[group] : T(0);
      } else {
        const int times = (place == places[2 * group]) + (place == places[2 * group + 1]);
        to[i] = douts[group] * times / 2;
      }
    });
  });
}

}  // namespace

void AddMedianKernels(KernelTable* table) {
  table->Add(
      "median", [](const KernelSpec& spec) { return Median(spec, /*ignores_nan=*/false); },
      MedianGrad);
  table->Add(
      "nanmedian", [](const KernelSpec& spec) { return Median(spec, /*ignores_nan=*/true); },
      MedianGrad);
}

}  // namespace weft
