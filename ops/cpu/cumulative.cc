// Sums and products of the elements up to each one along a dimension.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ops/cpu/axis_rows.h"
#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

struct CumulativeAttrs {
  int64_t axis;
  bool exclusive, flatten, reverse;

  explicit CumulativeAttrs(const OpAttrs& attrs)
      : axis(attrs.Int("axis")),
        exclusive(attrs.Bool("exclusive")),
        flatten(attrs.Bool("flatten")),
        reverse(attrs.Bool("reverse")) {}

  AxisRows RowsOf(const Dims& dims) const { return flatten ? OneRow(dims) : RowsAlong(dims, axis); }
};

// to[i] = combine of the elements of the row up to i, or from i on with `reverse`; without i if
// exclusive.
template <typename A, typename T, typename Combine>
void Scan(const AxisRows& rows, bool exclusive, bool reverse, A start, const T* from, T* to,
          Combine combine) {
  for (int64_t r = 0; r < rows.count(); ++r) {
    A value = start;
    for (int64_t k = 0; k < rows.length; ++k) {
      const int64_t at = rows.Start(r) + (reverse ? rows.length - 1 - k : k) * rows.stride;
      const A before = value;
      value = combine(value, from[at]);
      to[at] = static_cast<T>(exclusive ? before : value);
    }
  }
}

absl::StatusOr<Kernel> Cumsum(OpKernel op, const char* from, const char* to, bool is_gradient) {
  op.Ignore({"X"});
  const In x = op.in(from);
  const Out out = op.out(to);
  const CumulativeAttrs attrs(op.attrs());
  return op.InPlace(out, x).Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    using A = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
    Scan(attrs.RowsOf(out(ctx).dims()), attrs.exclusive, attrs.reverse != is_gradient, A(0),
         x.data<T>(ctx), out.data<T>(ctx),
         [](A sum, T value) { return sum + static_cast<A>(value); });
  });
}

// log(exp a + exp b)
double LogAddExp(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return NAN;
  const double larger = std::max(a, b), smaller = std::min(a, b);
  return std::isinf(larger) ? larger : larger + std::log1p(std::exp(smaller - larger));
}

// Out[i] = log Σ exp X[j].
absl::StatusOr<Kernel> LogCumsumExp(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const CumulativeAttrs attrs(op.attrs());
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    Scan(attrs.RowsOf(x(ctx).dims()), attrs.exclusive, attrs.reverse, -HUGE_VAL, x.data<T>(ctx),
         out.data<T>(ctx), LogAddExp);
  });
}

// X@GRAD[j] = Σ Out@GRAD[i] exp(X[j] - Out[i]) over i >= j, or i > j if exclusive. Computed from
// the end: Sum[i] = Out@GRAD[i] + exp(Out[i] - Out[i + 1]) Sum[i + 1] has the terms divided by
// exp(-Out[i]). Because Out is ascending, no power exceeds 1.
absl::StatusOr<Kernel> LogCumsumExpGrad(OpKernel op) {
  const In x = op.in("X"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const CumulativeAttrs attrs(op.attrs());
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    // exp(a - b), also for infinite values
    const auto ratio = [](double a, double b) { return a == b ? 1 : std::exp(a - b); };
    const AxisRows rows = attrs.RowsOf(x(ctx).dims());
    for (int64_t r = 0; r < rows.count(); ++r) {
      double sum = 0, y_of_sum = HUGE_VAL;
      for (int64_t k = rows.length; k-- > 0;) {
        const int64_t at = rows.Start(r) + (attrs.reverse ? rows.length - 1 - k : k) * rows.stride;
        if (attrs.exclusive) to[at] = static_cast<T>(sum * ratio(xs[at], y_of_sum));
        sum = dys[at] + sum * ratio(ys[at], y_of_sum);
        y_of_sum = ys[at];
        if (!attrs.exclusive) to[at] = static_cast<T>(sum * ratio(xs[at], y_of_sum));
      }
    }
  });
}

absl::StatusOr<Kernel> Cumprod(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t dim = op.attrs().Int("dim");
  return op.InPlace(out, x).Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    Scan(RowsAlong(x(ctx).dims(), dim), /*exclusive=*/false, /*reverse=*/false, T(1),
         x.data<T>(ctx), out.data<T>(ctx),
         [](T product, T value) { return static_cast<T>(Wrapping(product) * Wrapping(value)); });
  });
}

// X@GRAD[j] = Σ over i >= j of Out@GRAD[i] times the product of all X up to i except X[j]: the
// product of the elements before j, times Sum[j] = Out@GRAD[j] + X[j + 1] Sum[j + 1].
absl::StatusOr<Kernel> CumprodGrad(OpKernel op) {
  op.Ignore({"Out"});
  op.in("Out");
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t dim = op.attrs().Int("dim");
  return op.Make(Floats(x),
                 [=, before = std::vector<double>()](const KernelContext& ctx, auto zero) mutable {
                   using T = decltype(zero);
                   const T *xs = x.data<T>(ctx), *dys = dout.data<T>(ctx);
                   const AxisRows rows = RowsAlong(x(ctx).dims(), dim);
                   before.resize(rows.length);
                   for (int64_t r = 0; r < rows.count(); ++r) {
                     double product = 1;
                     for (int64_t j = 0; j < rows.length; ++j) {
                       before[j] = product;
                       product *= xs[rows.Start(r) + j * rows.stride];
                     }
                     double sum = 0, next = 0;  // Sum[j + 1], X[j + 1]
                     for (int64_t j = rows.length; j-- > 0;) {
                       const int64_t at = rows.Start(r) + j * rows.stride;
                       sum = dys[at] + next * sum;
                       next = xs[at];
                       dx.data<T>(ctx)[at] = static_cast<T>(before[j] * sum);
                     }
                   }
                 });
}

}  // namespace

void AddCumulativeKernels(KernelTable* table) {
  table->Add(
      "cumsum", [](const KernelSpec& spec) { return Cumsum(spec, "X", "Out", false); },
      [](const KernelSpec& spec) {
        return Cumsum(spec, "Out@GRAD", "X@GRAD", /*is_gradient=*/true);
      });
  table->Add("logcumsumexp", LogCumsumExp, LogCumsumExpGrad);
  table->Add("cumprod", Cumprod, CumprodGrad);
}

}  // namespace weft
