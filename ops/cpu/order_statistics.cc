// The largest and smallest elements along a dimension, those of the top k, the k-th, the most
// frequent one, and all of them sorted. Each comes with its index; gradients go to that element.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/axis_rows.h"
#include "ops/cpu/families.h"
#include "ops/cpu/order.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = the index of the largest, or smallest, element; of the first if several are equal.
absl::StatusOr<Kernel> ArgExtreme(OpKernel op, bool largest) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = op.attrs().Int("axis");
  const bool flatten = op.attrs().Bool("flatten");
  return op.Make(AllTypesButHalf(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    const AxisRows rows = flatten ? OneRow(x(ctx).dims()) : RowsAlong(x(ctx).dims(), axis);
    if (rows.length == 0) return absl::InvalidArgumentError("input X: has no elements");
    return ForElementType<int64_t, int32_t>("output Out", out(ctx), [&](auto tag) {
      auto* to = out.data<typename decltype(tag)::type>(ctx);
      for (int64_t r = 0; r < rows.count(); ++r) {
        int64_t best = 0;
        for (int64_t k = 1; k < rows.length; ++k) {
          const T a = xs[rows.Start(r) + best * rows.stride];
          const T b = xs[rows.Start(r) + k * rows.stride];
          if (largest ? Less(a, b) : Less(b, a)) best = k;
        }
        to[r] = static_cast<typename decltype(tag)::type>(best);
      }
      return absl::OkStatus();
    });
  });
}

// The first `count` elements of each row in sorted order, with their indices: Out and Indices.
absl::StatusOr<Kernel> Sorted(OpKernel op, const char* axis_attr, const char* descending_attr) {
  const In x = op.in("X");
  const Out out = op.out("Out"), indices = op.out("Indices");
  const int64_t axis = axis_attr == nullptr ? -1 : op.attrs().Int(axis_attr);
  const bool descending = descending_attr == nullptr || op.attrs().Bool(descending_attr);
  return op.Make(FloatsAndInts(x), [=, order = std::vector<int64_t>()](const KernelContext& ctx,
                                                                       auto zero) mutable {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    const AxisRows rows = RowsAlong(x(ctx).dims(), axis), kept = RowsAlong(out(ctx).dims(), axis);
    order.resize(rows.length);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const T* row = xs + rows.Start(r);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
        const T a = row[i * rows.stride], b = row[j * rows.stride];
        return descending ? Less(b, a) : Less(a, b);
      });
      for (int64_t k = 0; k < kept.length; ++k) {
        const int64_t at = kept.Start(r) + k * kept.stride;
        out.data<T>(ctx)[at] = row[order[k] * rows.stride];
        indices.data<int64_t>(ctx)[at] = order[k];
      }
    }
  });
}

// Scatters Out@GRAD to X@GRAD by Indices, 0 elsewhere. Out has any number of elements per row of X.
struct ChosenSlots {
  const char *x = "X", *indices = "Indices", *dout = "Out@GRAD", *dx = "X@GRAD";
};

absl::StatusOr<Kernel> ChosenGrad(const KernelSpec& spec, const char* axis_attr,
                                  const ChosenSlots& slots = {}) {
  OpKernel op(spec);
  op.Ignore({slots.x});
  const In indices = op.in(slots.indices), dout = op.in(slots.dout);
  const Out dx = op.out(slots.dx);
  const int64_t axis = axis_attr == nullptr ? -1 : spec.attrs.Int(axis_attr);
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const AxisRows rows = RowsAlong(dx(ctx).dims(), axis);
    AxisRows kept = rows;
    kept.length = rows.count() == 0 ? 0 : dout(ctx).size() / rows.count();
    WEFT_RETURN_IF_ERROR(CheckSize("Indices", indices(ctx), dout(ctx).size()));
    T* to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    return ForElementType<int64_t, int32_t>("Indices", indices(ctx), [&](auto tag) -> absl::Status {
      const auto* places = indices.data<typename decltype(tag)::type>(ctx);
      for (int64_t r = 0; r < kept.count(); ++r) {
        for (int64_t k = 0; k < kept.length; ++k) {
          const int64_t at = kept.Start(r) + k * kept.stride, place = places[at];
          if (place < 0 || place >= rows.length) {
            return absl::InvalidArgumentError(absl::StrCat("input Indices: ", place,
                                                           " at position ", at, " is not in [0, ",
                                                           rows.length, ")"));
          }
          to[rows.Start(r) + place * rows.stride] += dout.data<T>(ctx)[at];
        }
      }
      return absl::OkStatus();
    });
  });
}

// The running maximum, or minimum, of each row, and its last index: out and indices. NaN
// propagates.
absl::StatusOr<Kernel> CumulativeExtreme(OpKernel op, bool largest) {
  const In x = op.in("x");
  const Out out = op.out("out"), indices = op.out("indices");
  const int64_t axis = op.attrs().Int("axis");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    const AxisRows rows = RowsAlong(x(ctx).dims(), axis);
    return ForElementType<int64_t, int32_t>("output indices", indices(ctx), [&](auto tag) {
      using Place = typename decltype(tag)::type;
      for (int64_t r = 0; r < rows.count(); ++r) {
        int64_t best = 0;
        for (int64_t k = 0; k < rows.length; ++k) {
          const int64_t at = rows.Start(r) + k * rows.stride;
          const T a = xs[rows.Start(r) + best * rows.stride], b = xs[at];
          if (b != b || (largest ? b >= a : b <= a)) best = k;
          out.data<T>(ctx)[at] = xs[rows.Start(r) + best * rows.stride];
          indices.data<Place>(ctx)[at] = static_cast<Place>(best);
        }
      }
      return absl::OkStatus();
    });
  });
}

// Selects one element per row, with its index: Out and Indices. `choose` is given indices in
// ascending order of their elements (stable), and returns one of them; equal(i, j) says whether two
// have equal elements.
template <typename Choose>
absl::StatusOr<Kernel> ChosenInOrder(OpKernel op, Choose choose) {
  const In x = op.in("X");
  const Out out = op.out("Out"), indices = op.out("Indices");
  const int64_t axis = op.attrs().Int("axis");
  return op.Make(FloatsAndInts(x),
                 [=, order = std::vector<int64_t>()](const KernelContext& ctx,
                                                     auto zero) mutable -> absl::Status {
                   using T = decltype(zero);
                   const AxisRows rows = RowsAlong(x(ctx).dims(), axis);
                   if (rows.length == 0)
                     return absl::InvalidArgumentError("input X: has no elements");
                   indices(ctx).Resize(DType::kInt64, out(ctx).dims());
                   order.resize(rows.length);
                   for (int64_t r = 0; r < rows.count(); ++r) {
                     const T* row = x.data<T>(ctx) + rows.Start(r);
                     const auto less = [&](int64_t i, int64_t j) {
                       return Less(row[i * rows.stride], row[j * rows.stride]);
                     };
                     std::iota(order.begin(), order.end(), 0);
                     std::stable_sort(order.begin(), order.end(), less);
                     const int64_t place =
                         choose(order, [&](int64_t i, int64_t j) { return !less(i, j); });
                     out.data<T>(ctx)[r] = row[place * rows.stride];
                     indices.data<int64_t>(ctx)[r] = place;
                   }
                   return absl::OkStatus();
                 });
}

// The k-th smallest.
absl::StatusOr<Kernel> KthValue(const KernelSpec& spec) {
  const int64_t k = spec.attrs.Int("k");
  return ChosenInOrder(spec, [=](const std::vector<int64_t>& order, auto) { return order[k - 1]; });
}

// The most frequent element, its last occurrence; the smallest if several are equally frequent.
absl::StatusOr<Kernel> Mode(const KernelSpec& spec) {
  return ChosenInOrder(spec, [](const std::vector<int64_t>& order, auto equal) {
    size_t most = 0;
    int64_t place = order[0];
    for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
      while (end < order.size() && equal(order[begin], order[end])) ++end;
      if (end - begin <= most) continue;
      most = end - begin;
      place = order[end - 1];
    }
    return place;
  });
}

}  // namespace

void AddOrderStatisticsKernels(KernelTable* table) {
  const auto chosen_grad = [](const KernelSpec& spec) { return ChosenGrad(spec, "axis"); };
  const auto cumulative_grad = [](const KernelSpec& spec) {
    return ChosenGrad(spec, "axis", {"x", "indices", "out@GRAD", "x@GRAD"});
  };
  table->Add("arg_max", [](const KernelSpec& spec) { return ArgExtreme(spec, true); });
  table->Add("arg_min", [](const KernelSpec& spec) { return ArgExtreme(spec, false); });
  table->Add(
      "argsort", [](const KernelSpec& spec) { return Sorted(spec, "axis", "descending"); },
      chosen_grad);
  table->Add(
      "top_k", [](const KernelSpec& spec) { return Sorted(spec, nullptr, nullptr); },
      [](const KernelSpec& spec) { return ChosenGrad(spec, nullptr); });
  table->Add(
      "top_k_v2", [](const KernelSpec& spec) { return Sorted(spec, "axis", "largest"); },
      chosen_grad);
  table->Add(
      "cummax", [](const KernelSpec& spec) { return CumulativeExtreme(spec, true); },
      cumulative_grad);
  table->Add(
      "cummin", [](const KernelSpec& spec) { return CumulativeExtreme(spec, false); },
      cumulative_grad);
  table->Add("kthvalue", KthValue, chosen_grad);
  table->Add("mode", Mode, chosen_grad);
}

}  // namespace weft
