// Ops that work on the elements along one dimension: cumulative sums, the largest ones, sorting.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "ops/cpu/families.h"
#include "ops/cpu/order.h"
#include "ops/cpu/softmax.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The rows along the axis; of a flattened tensor, or a scalar, one row.
ClassRows RowsOf(const Dims& dims, int64_t axis, bool flatten = false) {
  if (flatten || dims.empty()) return *ClassRows::Along(0, {NumElements(dims)});
  return *ClassRows::Along(axis, dims);
}

// --- Cumulative ----------------------------------------------------------------------------------

struct CumulativeAttrs {
  int64_t axis;
  bool exclusive, flatten, reverse;

  explicit CumulativeAttrs(const OpAttrs& attrs)
      : axis(attrs.Int("axis")),
        exclusive(attrs.Bool("exclusive")),
        flatten(attrs.Bool("flatten")),
        reverse(attrs.Bool("reverse")) {}
};

// to[i] = Σ from[j] for j up to i, or from i on where `reverse`; without i itself where exclusive.
template <typename T>
void CumulativeSum(const ClassRows& rows, bool exclusive, bool reverse, const T* from, T* to) {
  for (int64_t r = 0; r < rows.count(); ++r) {
    std::conditional_t<std::is_integral_v<T>, uint64_t, double> sum = 0;
    for (int64_t k = 0; k < rows.classes; ++k) {
      const int64_t at = rows.Start(r) + (reverse ? rows.classes - 1 - k : k) * rows.stride;
      const T value = from[at];
      if (exclusive) to[at] = static_cast<T>(sum);
      sum += static_cast<decltype(sum)>(value);
      if (!exclusive) to[at] = static_cast<T>(sum);
    }
  }
}

absl::StatusOr<Kernel> Cumsum(const KernelSpec& spec, const char* from, const char* to,
                              bool is_gradient) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In x = op.in(from);
  const Out out = op.out(to);
  const CumulativeAttrs attrs(spec.attrs);
  return op.InPlace(out, x).Make(Numbers(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    CumulativeSum(RowsOf(out(ctx).dims(), attrs.axis, attrs.flatten), attrs.exclusive,
                  attrs.reverse != is_gradient, x.data<T>(ctx), out.data<T>(ctx));
  });
}

// log(exp a + exp b)
double LogAddExp(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return NAN;
  const double larger = std::max(a, b), smaller = std::min(a, b);
  return std::isinf(larger) ? larger : larger + std::log1p(std::exp(smaller - larger));
}

// Out[i] = log Σ exp X[j].
absl::StatusOr<Kernel> LogCumsumExp(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const CumulativeAttrs attrs(spec.attrs);
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const ClassRows rows = RowsOf(x(ctx).dims(), attrs.axis, attrs.flatten);
    for (int64_t r = 0; r < rows.count(); ++r) {
      double result = -HUGE_VAL;
      for (int64_t k = 0; k < rows.classes; ++k) {
        const int64_t at = rows.Start(r) + (attrs.reverse ? rows.classes - 1 - k : k) * rows.stride;
        const double before = result;
        result = LogAddExp(result, x.data<T>(ctx)[at]);
        out.data<T>(ctx)[at] = static_cast<T>(attrs.exclusive ? before : result);
      }
    }
  });
}

// X@GRAD[j] = Σ Out@GRAD[i] exp(X[j] - Out[i]) over i >= j, or i > j where exclusive. From the last
// one on: Sum[i] = Out@GRAD[i] + exp(Out[i] - Out[i + 1]) Sum[i + 1] has the terms over
// exp(-Out[i]); as Out rises, no power exceeds 1.
absl::StatusOr<Kernel> LogCumsumExpGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const CumulativeAttrs attrs(spec.attrs);
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    // exp(a - b), of infinite ones too
    const auto ratio = [](double a, double b) { return a == b ? 1 : std::exp(a - b); };
    const ClassRows rows = RowsOf(x(ctx).dims(), attrs.axis, attrs.flatten);
    for (int64_t r = 0; r < rows.count(); ++r) {
      double sum = 0, y_of_sum = HUGE_VAL;
      for (int64_t k = rows.classes; k-- > 0;) {
        const int64_t at = rows.Start(r) + (attrs.reverse ? rows.classes - 1 - k : k) * rows.stride;
        if (attrs.exclusive) to[at] = static_cast<T>(sum * ratio(xs[at], y_of_sum));
        sum = dys[at] + sum * ratio(ys[at], y_of_sum);
        y_of_sum = ys[at];
        if (!attrs.exclusive) to[at] = static_cast<T>(sum * ratio(xs[at], y_of_sum));
      }
    }
  });
}

absl::StatusOr<Kernel> Cumprod(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t dim = spec.attrs.Int("dim");
  return op.InPlace(out, x).Make(Numbers(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const ClassRows rows = RowsOf(x(ctx).dims(), dim);
    for (int64_t r = 0; r < rows.count(); ++r) {
      T product = 1;
      for (int64_t k = 0; k < rows.classes; ++k) {
        const int64_t at = rows.Start(r) + k * rows.stride;
        product = static_cast<T>(Wrapping(product) * Wrapping(x.data<T>(ctx)[at]));
        out.data<T>(ctx)[at] = product;
      }
    }
  });
}

// X@GRAD[j] = Σ over i >= j of Out@GRAD[i] times the product of all X up to i but X[j]: the product
// of those before j, times Sum[j] = Out@GRAD[j] + X[j + 1] Sum[j + 1].
absl::StatusOr<Kernel> CumprodGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"Out"});
  op.in("Out");
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t dim = spec.attrs.Int("dim");
  return op.Make(Floats(x),
                 [=, before = std::vector<double>()](const KernelContext& ctx, auto zero) mutable {
                   using T = decltype(zero);
                   const T *xs = x.data<T>(ctx), *dys = dout.data<T>(ctx);
                   const ClassRows rows = RowsOf(x(ctx).dims(), dim);
                   before.resize(rows.classes);
                   for (int64_t r = 0; r < rows.count(); ++r) {
                     double product = 1;
                     for (int64_t j = 0; j < rows.classes; ++j) {
                       before[j] = product;
                       product *= xs[rows.Start(r) + j * rows.stride];
                     }
                     double sum = 0, next = 0;  // Sum[j + 1], X[j + 1]
                     for (int64_t j = rows.classes; j-- > 0;) {
                       const int64_t at = rows.Start(r) + j * rows.stride;
                       sum = dys[at] + next * sum;
                       next = xs[at];
                       dx.data<T>(ctx)[at] = static_cast<T>(before[j] * sum);
                     }
                   }
                 });
}

// --- Order ---------------------------------------------------------------------------------------

// Out = the place of the largest, or smallest: the first of equal ones.
absl::StatusOr<Kernel> ArgExtreme(const KernelSpec& spec, bool largest) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = spec.attrs.Int("axis");
  const bool flatten = spec.attrs.Bool("flatten");
  return op.Make(AnyNumbers(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    const ClassRows rows = RowsOf(x(ctx).dims(), axis, flatten);
    if (rows.classes == 0) return absl::InvalidArgumentError("input X: has no elements");
    return ForElementType<int64_t, int32_t>("output Out", out(ctx), [&](auto tag) {
      auto* to = out.data<typename decltype(tag)::type>(ctx);
      for (int64_t r = 0; r < rows.count(); ++r) {
        int64_t best = 0;
        for (int64_t k = 1; k < rows.classes; ++k) {
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

// The first `count` elements of each row in order, with their places: Out and Indices.
absl::StatusOr<Kernel> Sorted(const KernelSpec& spec, const char* axis_attr,
                              const char* descending_attr) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out"), indices = op.out("Indices");
  const int64_t axis = axis_attr == nullptr ? -1 : spec.attrs.Int(axis_attr);
  const bool descending = descending_attr == nullptr || spec.attrs.Bool(descending_attr);
  return op.Make(
      Numbers(x), [=, order = std::vector<int64_t>()](const KernelContext& ctx, auto zero) mutable {
        using T = decltype(zero);
        const T* xs = x.data<T>(ctx);
        const ClassRows rows = RowsOf(x(ctx).dims(), axis), kept = RowsOf(out(ctx).dims(), axis);
        order.resize(rows.classes);
        for (int64_t r = 0; r < rows.count(); ++r) {
          const T* row = xs + rows.Start(r);
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
            const T a = row[i * rows.stride], b = row[j * rows.stride];
            return descending ? Less(b, a) : Less(a, b);
          });
          for (int64_t k = 0; k < kept.classes; ++k) {
            const int64_t at = kept.Start(r) + k * kept.stride;
            out.data<T>(ctx)[at] = row[order[k] * rows.stride];
            indices.data<int64_t>(ctx)[at] = order[k];
          }
        }
      });
}

// X@GRAD = Out@GRAD at the places that Indices has for its elements, 0 elsewhere. Out has any
// number of elements for each row of X.
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
    const ClassRows rows = RowsOf(dx(ctx).dims(), axis);
    ClassRows kept = rows;
    kept.classes = rows.count() == 0 ? 0 : dout(ctx).size() / rows.count();
    WEFT_RETURN_IF_ERROR(CheckSize("Indices", indices(ctx), dout(ctx).size()));
    T* to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    return ForElementType<int64_t, int32_t>("Indices", indices(ctx), [&](auto tag) -> absl::Status {
      const auto* places = indices.data<typename decltype(tag)::type>(ctx);
      for (int64_t r = 0; r < kept.count(); ++r) {
        for (int64_t k = 0; k < kept.classes; ++k) {
          const int64_t at = kept.Start(r) + k * kept.stride, place = places[at];
          if (place < 0 || place >= rows.classes) {
            return absl::InvalidArgumentError(absl::StrCat("input Indices: ", place,
                                                           " at position ", at, " is not in [0, ",
                                                           rows.classes, ")"));
          }
          to[rows.Start(r) + place * rows.stride] += dout.data<T>(ctx)[at];
        }
      }
      return absl::OkStatus();
    });
  });
}

// The largest, or smallest, element of each row so far, and the place of the last one of these: out
// and indices. What is not a number stays.
absl::StatusOr<Kernel> CumulativeExtreme(const KernelSpec& spec, bool largest) {
  OpKernel op(spec);
  const In x = op.in("x");
  const Out out = op.out("out"), indices = op.out("indices");
  const int64_t axis = spec.attrs.Int("axis");
  return op.Make(Numbers(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    const ClassRows rows = RowsOf(x(ctx).dims(), axis);
    return ForElementType<int64_t, int32_t>("output indices", indices(ctx), [&](auto tag) {
      using Place = typename decltype(tag)::type;
      for (int64_t r = 0; r < rows.count(); ++r) {
        int64_t best = 0;
        for (int64_t k = 0; k < rows.classes; ++k) {
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

// One element of each row with its place: Out and Indices. `choose` is given places in ascending
// order of their elements, equal ones in their own, and tells which of these counts from
// equal(place, place).
template <typename Choose>
absl::StatusOr<Kernel> ChosenInOrder(const KernelSpec& spec, Choose choose) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out"), indices = op.out("Indices");
  const int64_t axis = spec.attrs.Int("axis");
  return op.Make(Numbers(x),
                 [=, order = std::vector<int64_t>()](const KernelContext& ctx,
                                                     auto zero) mutable -> absl::Status {
                   using T = decltype(zero);
                   const ClassRows rows = RowsOf(x(ctx).dims(), axis);
                   if (rows.classes == 0)
                     return absl::InvalidArgumentError("input X: has no elements");
                   indices(ctx).Resize(DType::kInt64, out(ctx).dims());
                   order.resize(rows.classes);
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

// The last one of the most frequent, and of these the smallest.
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

// --- Normalizing ---------------------------------------------------------------------------------

// Out = X - log Σ exp X.
absl::StatusOr<Kernel> LogSoftmax(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = spec.attrs.Int("axis");
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const ClassRows rows = RowsOf(x(ctx).dims(), axis);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const T* from = x.data<T>(ctx) + rows.Start(r);
      T* to = out.data<T>(ctx) + rows.Start(r);
      T largest = -std::numeric_limits<T>::infinity();
      for (int64_t k = 0; k < rows.classes; ++k) largest = std::max(largest, from[k * rows.stride]);
      double sum = 0;
      for (int64_t k = 0; k < rows.classes; ++k) sum += std::exp(from[k * rows.stride] - largest);
      const T log_sum = static_cast<T>(std::log(sum));
      for (int64_t k = 0; k < rows.classes; ++k) {
        to[k * rows.stride] = from[k * rows.stride] - largest - log_sum;
      }
    }
  });
}

// X@GRAD = Out@GRAD - exp(Out) Σ Out@GRAD.
absl::StatusOr<Kernel> LogSoftmaxGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = spec.attrs.Int("axis");
  return op.InPlace(dx, dout).InPlace(dx, out).Make(
      Floats(out), [=](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const T *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
        T* to = dx.data<T>(ctx);
        const ClassRows rows = RowsOf(out(ctx).dims(), axis);
        for (int64_t r = 0; r < rows.count(); ++r) {
          double sum = 0;
          const int64_t start = rows.Start(r), end = start + rows.classes * rows.stride;
          for (int64_t i = start; i < end; i += rows.stride) sum += dys[i];
          for (int64_t i = start; i < end; i += rows.stride) {
            to[i] = dys[i] - std::exp(ys[i]) * static_cast<T>(sum);
          }
        }
      });
}

// Norm = √(Σ X² + epsilon), Out = X / Norm.
absl::StatusOr<Kernel> L2Normalize(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out"), norm = op.out("Norm");
  const int64_t axis = spec.attrs.Int("axis");
  const double epsilon = spec.attrs.Float("epsilon");
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const ClassRows rows = RowsOf(x(ctx).dims(), axis);
    const T* xs = x.data<T>(ctx);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t start = rows.Start(r), end = start + rows.classes * rows.stride;
      double sum = epsilon;
      for (int64_t i = start; i < end; i += rows.stride) sum += double{xs[i]} * xs[i];
      const T root = static_cast<T>(std::sqrt(sum));
      for (int64_t i = start; i < end; i += rows.stride) out.data<T>(ctx)[i] = xs[i] / root;
      if (T* norms = norm.data_or_null<T>(ctx)) norms[r] = root;
    }
  });
}

// X@GRAD = (Out@GRAD - X (Σ X Out@GRAD) / Norm²) / Norm.
absl::StatusOr<Kernel> L2NormalizeGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), norm = op.in("Norm"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = spec.attrs.Int("axis");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const ClassRows rows = RowsOf(x(ctx).dims(), axis);
    const T *xs = x.data<T>(ctx), *dys = dout.data<T>(ctx);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t start = rows.Start(r), end = start + rows.classes * rows.stride;
      const double n = norm.data<T>(ctx)[r];
      double dot = 0;
      for (int64_t i = start; i < end; i += rows.stride) dot += double{xs[i]} * dys[i];
      for (int64_t i = start; i < end; i += rows.stride) {
        dx.data<T>(ctx)[i] = static_cast<T>((dys[i] - xs[i] * dot / (n * n)) / n);
      }
    }
  });
}

// The layers along an axis, scaled down to a p-norm of max_norm.
struct Renorming {
  static constexpr double kEpsilon = 1e-7;  // Paddle's, in the divisor
  int64_t axis;
  double p, max_norm;

  explicit Renorming(const OpAttrs& attrs)
      : axis(attrs.Int("axis")), p(attrs.Float("p")), max_norm(attrs.Float("max_norm")) {}

  // Adds value_of(i), for each element i of a tensor, to the sum of its layer.
  template <typename ValueOf>
  static std::vector<double> SumLayers(const ClassRows& rows, ValueOf value_of) {
    std::vector<double> sums(rows.classes, 0.0);
    for (int64_t i = 0; i < rows.count() * rows.classes; ++i) sums[LayerOf(rows, i)] += value_of(i);
    return sums;
  }
  static int64_t LayerOf(const ClassRows& rows, int64_t i) {
    return i / rows.stride % rows.classes;
  }
  template <typename T>
  std::vector<double> Norms(const ClassRows& rows, const T* xs) const {
    std::vector<double> norms =
        SumLayers(rows, [&](int64_t i) { return std::pow(std::fabs(double{xs[i]}), p); });
    for (double& norm : norms) norm = std::pow(norm, 1 / p);
    return norms;
  }
  double Scale(double norm) const { return norm > max_norm ? max_norm / (norm + kEpsilon) : 1; }
};

// Out = X max_norm / norm in layers whose norm exceeds max_norm, X in others.
absl::StatusOr<Kernel> Renorm(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const Renorming renorming(spec.attrs);
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    const ClassRows rows = RowsOf(x(ctx).dims(), renorming.axis);
    const std::vector<double> norms = renorming.Norms(rows, xs);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      out.data<T>(ctx)[i] =
          static_cast<T>(xs[i] * renorming.Scale(norms[Renorming::LayerOf(rows, i)]));
    }
  });
}

// X@GRAD = s (Out@GRAD - sign(X) |X|^(p - 1) Σ X Out@GRAD / norm^(p - 1) / norm) with s = max_norm
// / norm in layers whose norm exceeds max_norm, Out@GRAD in others.
absl::StatusOr<Kernel> RenormGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const Renorming renorming(spec.attrs);
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *dys = dout.data<T>(ctx);
    const ClassRows rows = RowsOf(x(ctx).dims(), renorming.axis);
    const std::vector<double> norms = renorming.Norms(rows, xs);
    const std::vector<double> dots =
        Renorming::SumLayers(rows, [&](int64_t i) { return double{xs[i]} * dys[i]; });
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const int64_t layer = Renorming::LayerOf(rows, i);
      const double a = xs[i], norm = norms[layer], scale = renorming.Scale(norm);
      double along = 0;  // the derivative of the norm, times Σ X Out@GRAD / norm
      if (norm > renorming.max_norm && a != 0) {
        along = std::copysign(std::pow(std::fabs(a) / norm, renorming.p - 1), a) * dots[layer] /
                (norm + Renorming::kEpsilon);
      }
      dx.data<T>(ctx)[i] = static_cast<T>(scale * (dys[i] - along));
    }
  });
}

// --- Slopes and groups ---------------------------------------------------------------------------

// Which slope of prelu an element of X has.
struct Slopes {
  int64_t count, stride;

  Slopes(const OpAttrs& attrs, const Dims& dims) : count(1), stride(1) {
    const std::string& mode = attrs.String("mode");
    const absl::Span<const int64_t> all = dims;
    if (mode == "element") {
      count = NumElements(all.subspan(1));
    } else if (mode == "channel") {
      const size_t axis = attrs.String("data_format").back() == 'C' ? dims.size() - 1 : 1;
      count = dims[axis];
      stride = NumElements(all.subspan(axis + 1));
    }
  }
  int64_t operator()(int64_t element) const { return element / stride % count; }
};

// Out = X where X > 0, else Alpha X.
absl::StatusOr<Kernel> Prelu(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), alpha = op.in("Alpha");
  const Out out = op.out("Out");
  return op.InPlace(out, x).Make(Floats(x),
                                 [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
                                   using T = decltype(zero);
                                   const Slopes slope(attrs, x(ctx).dims());
                                   const T *xs = x.data<T>(ctx), *alphas = alpha.data<T>(ctx);
                                   T* to = out.data<T>(ctx);
                                   for (int64_t i = 0; i < x(ctx).size(); ++i) {
                                     to[i] = xs[i] > 0 ? xs[i] : alphas[slope(i)] * xs[i];
                                   }
                                 });
}

// X@GRAD = Out@GRAD where X > 0, else Alpha Out@GRAD. Alpha@GRAD = Σ X Out@GRAD where X <= 0.
absl::StatusOr<Kernel> PreluGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), alpha = op.in("Alpha"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dalpha = op.out("Alpha@GRAD");
  return op.Make(Floats(x), [=, attrs = spec.attrs](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Slopes slope(attrs, x(ctx).dims());
    const T *xs = x.data<T>(ctx), *alphas = alpha.data<T>(ctx), *dys = dout.data<T>(ctx);
    std::vector<double> sums(slope.count, 0.0);
    T* to = dx.data_or_null<T>(ctx);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      if (to != nullptr) to[i] = xs[i] > 0 ? dys[i] : alphas[slope(i)] * dys[i];
      if (!(xs[i] > 0)) sums[slope(i)] += double{xs[i]} * dys[i];
    }
    if (T* sum = dalpha.data_or_null<T>(ctx)) {
      for (int64_t k = 0; k < slope.count; ++k) sum[k] = static_cast<T>(sums[k]);
    }
  });
}

// Calls visit(place in Out, first place in X, step) for every group of `groups` channels of X.
template <typename Visit>
void ForEachGroup(const Dims& out_dims, int64_t axis, int64_t groups, Visit visit) {
  const ClassRows rows = RowsOf(out_dims, axis);
  for (int64_t r = 0; r < rows.count(); ++r) {
    const int64_t inner = r % rows.stride, outer = r / rows.stride;
    for (int64_t c = 0; c < rows.classes; ++c) {
      const int64_t channel = outer * rows.classes + c;
      visit(channel * rows.stride + inner, channel * groups * rows.stride + inner, rows.stride);
    }
  }
}

// Out = the largest of each group of channels.
absl::StatusOr<Kernel> Maxout(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = spec.attrs.Int("axis"), groups = spec.attrs.Int("groups");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    ForEachGroup(out(ctx).dims(), axis, groups, [&](int64_t place, int64_t first, int64_t step) {
      T largest = xs[first];
      for (int64_t k = 1; k < groups; ++k) largest = std::max(largest, xs[first + k * step]);
      out.data<T>(ctx)[place] = largest;
    });
  });
}

// X@GRAD = Out@GRAD at the first of the largest elements of a group, 0 elsewhere.
absl::StatusOr<Kernel> MaxoutGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = spec.attrs.Int("axis"), groups = spec.attrs.Int("groups");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* xs = x.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    ForEachGroup(out(ctx).dims(), axis, groups, [&](int64_t place, int64_t first, int64_t step) {
      for (int64_t k = 0; k < groups; ++k) {
        if (xs[first + k * step] != out.data<T>(ctx)[place]) continue;
        to[first + k * step] = dout.data<T>(ctx)[place];
        break;
      }
    });
  });
}

}  // namespace

void AddAlongKernels(KernelTable* table) {
  table->Add("cumsum", [](const KernelSpec& spec) { return Cumsum(spec, "X", "Out", false); });
  table->Add("cumsum_grad", [](const KernelSpec& spec) {
    return Cumsum(spec, "Out@GRAD", "X@GRAD", /*is_gradient=*/true);
  });
  table->Add("logcumsumexp", LogCumsumExp);
  table->Add("logcumsumexp_grad", LogCumsumExpGrad);
  table->Add("cumprod", Cumprod);
  table->Add("cumprod_grad", CumprodGrad);
  table->Add("arg_max", [](const KernelSpec& spec) { return ArgExtreme(spec, true); });
  table->Add("arg_min", [](const KernelSpec& spec) { return ArgExtreme(spec, false); });
  table->Add("argsort", [](const KernelSpec& spec) { return Sorted(spec, "axis", "descending"); });
  table->Add("argsort_grad", [](const KernelSpec& spec) { return ChosenGrad(spec, "axis"); });
  table->Add("top_k", [](const KernelSpec& spec) { return Sorted(spec, nullptr, nullptr); });
  table->Add("top_k_grad", [](const KernelSpec& spec) { return ChosenGrad(spec, nullptr); });
  table->Add("top_k_v2", [](const KernelSpec& spec) { return Sorted(spec, "axis", "largest"); });
  table->Add("top_k_v2_grad", [](const KernelSpec& spec) { return ChosenGrad(spec, "axis"); });
  const auto cumulative_grad = [](const KernelSpec& spec) {
    return ChosenGrad(spec, "axis", {"x", "indices", "out@GRAD", "x@GRAD"});
  };
  table->Add("cummax", [](const KernelSpec& spec) { return CumulativeExtreme(spec, true); });
  table->Add("cummax_grad", cumulative_grad);
  table->Add("cummin", [](const KernelSpec& spec) { return CumulativeExtreme(spec, false); });
  table->Add("cummin_grad", cumulative_grad);
  table->Add("kthvalue", KthValue);
  table->Add("kthvalue_grad", [](const KernelSpec& spec) { return ChosenGrad(spec, "axis"); });
  table->Add("mode", Mode);
  table->Add("mode_grad", [](const KernelSpec& spec) { return ChosenGrad(spec, "axis"); });
  table->Add("log_softmax", LogSoftmax);
  table->Add("log_softmax_grad", LogSoftmaxGrad);
  table->Add("renorm", Renorm);
  table->Add("renorm_grad", RenormGrad);
  table->Add("prelu", Prelu);
  table->Add("prelu_grad", PreluGrad);
  table->Add("maxout", Maxout);
  table->Add("maxout_grad", MaxoutGrad);
  table->Add("norm", L2Normalize);
  table->Add("norm_grad", L2NormalizeGrad);
}

}  // namespace weft
