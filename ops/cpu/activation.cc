// Elementwise functions of one tensor: a table of formulas. A new one is a row here and one in
// ops/schema/activation_schemas.cc. At the end: ReLU with a trained slope for negative elements.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ops/cpu/erfinv.h"
#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The attributes that a formula reads, in the order of its row.
using Attrs = std::array<double, 3>;

Attrs ReadAttrs(const KernelSpec& spec, const std::vector<const char*>& names) {
  Attrs values{};
  for (size_t i = 0; i < names.size(); ++i) {
    const AttrValue& like = spec.schema->FindAttr(names[i])->default_value;
    values[i] = std::holds_alternative<bool>(like) ? static_cast<double>(spec.attrs.Bool(names[i]))
                                                   : spec.attrs.Float(names[i]);
  }
  return values;
}

// Adds `type`, Out = f(x, a), and `type`_grad, X@GRAD = df(x, y, dy, a), with x from X, y from Out
// and dy from Out@GRAD. A formula must not use what the gradient op does not read. a: the
// attributes of these names.
template <typename Forward, typename Backward>
void Add(KernelTable* table, const std::string& type, const std::vector<const char*>& attrs,
         Forward f, Backward df) {
  const auto forward = [=](OpKernel op) {
    const In x = op.in("X");
    return op.InPlace().MakeElementwise(
        Floats(x), op.out("Out"), [f, a = ReadAttrs(op.spec(), attrs)](auto x) { return f(x, a); },
        x);
  };
  const auto backward = [=](OpKernel op) {
    const In dout = op.in("Out@GRAD");
    // Out@GRAD substitutes for unread inputs.
    const In x = op.spec().Input("X") >= 0 ? op.in("X") : dout;
    const In y = op.spec().Input("Out") >= 0 ? op.in("Out") : dout;
    return op.InPlace().MakeElementwise(
        Floats(dout), op.out("X@GRAD"),
        [df, a = ReadAttrs(op.spec(), attrs)](auto x, auto y, auto dy) { return df(x, y, dy, a); },
        x, y, dout);
  };
  table->Add(type, forward, backward);
}

// The same without attributes: f(x), df(x, y, dy).
template <typename Forward, typename Backward>
void Add(KernelTable* table, const std::string& type, Forward f, Backward df) {
  Add(
      table, type, {}, [=](auto x, auto&) { return f(x); },
      [=](auto x, auto y, auto dy, auto&) { return df(x, y, dy); });
}

template <typename T>
T Sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

// log(1 + exp(x)), which is x for large x.
template <typename T>
T Softplus(T x, double threshold) {
  return x > threshold ? x : std::log1p(std::exp(x));
}

// The logarithmic derivative of the gamma function; NaN at 0 and the negative integers. Relative
// error below 1e-13 away from zeros.
//
// Above 10 the asymptotic series (Abramowitz and Stegun 6.3.18, 6.4.12). The recurrence (6.3.5,
// 6.4.6) moves other arguments there, the reflection formula (6.3.7, 6.4.7) negative ones.
double Digamma(double x) {
  if (x <= 0) {
    if (x == std::floor(x)) return NAN;
    return Digamma(1 - x) - M_PI / std::tan(M_PI * x);
  }
  double sum = 0;
  for (; x < 10; ++x) sum -= 1 / x;
  const double r = 1 / (x * x);
  const double series =
      r *
      (1.0 / 12 -
       r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132 - r * 691.0 / 32760)))));
  return sum + std::log(x) - 0.5 / x - series;
}

// The derivative of Digamma, by the same steps.
double Trigamma(double x) {
  if (x <= 0) {
    if (x == std::floor(x)) return NAN;
    const double sine = std::sin(M_PI * x);
    return M_PI * M_PI / (sine * sine) - Trigamma(1 - x);
  }
  double sum = 0;
  for (; x < 10; ++x) sum += 1 / (x * x);
  const double r = 1 / (x * x);
  const double series =
      r * (1.0 / 6 - r * (1.0 / 30 - r * (1.0 / 42 - r * (1.0 / 30 - r * 5.0 / 66)))) / x;
  return sum + 1 / x + r / 2 + series;
}

// x times the standard normal distribution function, or its tanh approximation.
template <typename T>
T Gelu(T x, bool approximate) {
  constexpr T kRoot = static_cast<T>(0.79788456080286535588);  // sqrt(2 / pi)
  if (approximate) return x / 2 * (1 + std::tanh(kRoot * (x + T(0.044715) * x * x * x)));
  return x / 2 * (1 + std::erf(x * static_cast<T>(M_SQRT1_2)));
}

template <typename T>
T GeluDerivative(T x, bool approximate) {
  constexpr T kRoot = static_cast<T>(0.79788456080286535588);  // sqrt(2 / pi)
  if (approximate) {
    const T t = std::tanh(kRoot * (x + T(0.044715) * x * x * x));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * kRoot * (1 + T(0.134145) * x * x);
  }
  return (1 + std::erf(x * static_cast<T>(M_SQRT1_2))) / 2 + x * kRoot / 2 * std::exp(-x * x / 2);
}

// NaN in, NaN out.
template <typename T>
T SignOf(T x) {
  return x > 0 ? T(1) : x < 0 ? T(-1) : x == 0 ? T(0) : x;
}

// The sign, with derivative 0: for ops without a separate gradient op.
absl::StatusOr<Kernel> Sign(OpKernel op) {
  const In x = op.in("X");
  return op.InPlace().MakeElementwise(
      Floats(x), op.out("Out"), [](auto x) { return SignOf(x); }, x);
}

// The derivative of a step function.
constexpr auto kFlat = [](auto, auto, auto) { return 0; };

// One formula per line, if it fits.
// clang-format off
void AddPowersAndLogarithms(KernelTable* t) {
  Add(t, "exp", [](auto x) { return std::exp(x); }, [](auto, auto y, auto dy) { return dy * y; });
  Add(t, "expm1", [](auto x) { return std::expm1(x); },
      [](auto, auto y, auto dy) { return dy * (y + 1); });
  Add(t, "log", [](auto x) { return std::log(x); }, [](auto x, auto, auto dy) { return dy / x; });
  Add(t, "log10", [](auto x) { return std::log10(x); },
      [](auto x, auto, auto dy) { return dy / (x * M_LN10); });
  Add(t, "log1p", [](auto x) { return std::log1p(x); },
      [](auto x, auto, auto dy) { return dy / (1 + x); });
  Add(t, "log2", [](auto x) { return std::log2(x); },
      [](auto x, auto, auto dy) { return dy / (x * M_LN2); });
  Add(t, "logit", {"eps"},
      [](auto x, auto& a) {
        const double p = a[0] == 0 ? x : std::min(std::max<double>(x, a[0]), 1 - a[0]);
        return p < 0 || p > 1 ? NAN : std::log(p / (1 - p));
      },
      [](auto x, auto, auto dy, auto& a) {
        return x < a[0] || x > 1 - a[0] ? 0 : dy / (double{x} * (1 - x));
      });
  Add(t, "pow", {"factor"},
      [](auto x, auto& a) { return std::pow(x, static_cast<decltype(x)>(a[0])); },
      [](auto x, auto, auto dy, auto& a) { return dy * a[0] * std::pow(double{x}, a[0] - 1); });
  Add(t, "reciprocal", [](auto x) { return 1 / x; },
      [](auto, auto y, auto dy) { return -dy * y * y; });
  Add(t, "rsqrt", [](auto x) { return 1 / std::sqrt(x); },
      [](auto, auto y, auto dy) { return -dy * y * y * y / 2; });
  Add(t, "sqrt", [](auto x) { return std::sqrt(x); },
      [](auto, auto y, auto dy) { return dy / (2 * y); });
  Add(t, "square", [](auto x) { return x * x; }, [](auto x, auto, auto dy) { return 2 * x * dy; });
}

void AddTrigonometry(KernelTable* t) {
  Add(t, "acos", [](auto x) { return std::acos(x); },
      [](auto x, auto, auto dy) { return -dy / std::sqrt(1 - x * x); });
  Add(t, "acosh", [](auto x) { return std::acosh(x); },
      [](auto x, auto, auto dy) { return dy / std::sqrt(x * x - 1); });
  Add(t, "asin", [](auto x) { return std::asin(x); },
      [](auto x, auto, auto dy) { return dy / std::sqrt(1 - x * x); });
  Add(t, "asinh", [](auto x) { return std::asinh(x); },
      [](auto x, auto, auto dy) { return dy / std::sqrt(x * x + 1); });
  Add(t, "atan", [](auto x) { return std::atan(x); },
      [](auto x, auto, auto dy) { return dy / (1 + x * x); });
  Add(t, "atanh", [](auto x) { return std::atanh(x); },
      [](auto x, auto, auto dy) { return dy / (1 - x * x); });
  Add(t, "cos", [](auto x) { return std::cos(x); },
      [](auto x, auto, auto dy) { return -dy * std::sin(x); });
  Add(t, "cosh", [](auto x) { return std::cosh(x); },
      [](auto x, auto, auto dy) { return dy * std::sinh(x); });
  Add(t, "sin", [](auto x) { return std::sin(x); },
      [](auto x, auto, auto dy) { return dy * std::cos(x); });
  Add(t, "sinh", [](auto x) { return std::sinh(x); },
      [](auto x, auto, auto dy) { return dy * std::cosh(x); });
  Add(t, "stanh", {"scale_a", "scale_b"},
      [](auto x, auto& a) { return a[1] * std::tanh(a[0] * x); },
      [](auto x, auto, auto dy, auto& a) {
        const double y = std::tanh(a[0] * x);
        return dy * a[0] * a[1] * (1 - y * y);
      });
  Add(t, "tan", [](auto x) { return std::tan(x); },
      [](auto x, auto, auto dy) { return dy * (1 + std::tan(x) * std::tan(x)); });
  Add(t, "tanh", [](auto x) { return std::tanh(x); },
      [](auto, auto y, auto dy) { return dy * (1 - y * y); });
  Add(t, "tanh_shrink", [](auto x) { return x - std::tanh(x); },
      [](auto x, auto, auto dy) { return dy * std::tanh(x) * std::tanh(x); });
}

void AddSpecialFunctions(KernelTable* t) {
  Add(t, "digamma", [](auto x) { return Digamma(x); },
      [](auto x, auto, auto dy) { return dy * Trigamma(x); });
  Add(t, "erf", [](auto x) { return std::erf(x); },
      [](auto x, auto, auto dy) {
        return dy * static_cast<decltype(x)>(M_2_SQRTPI) * std::exp(-x * x);
      });
  Add(t, "erfinv", [](auto x) { return Erfinv(x); },
      [](auto, auto y, auto dy) { return dy * std::sqrt(M_PI) / 2 * std::exp(double{y} * y); });
  Add(t, "gelu", {"approximate"}, [](auto x, auto& a) { return Gelu(x, a[0] != 0); },
      [](auto x, auto, auto dy, auto& a) { return dy * GeluDerivative(x, a[0] != 0); });
  Add(t, "lgamma", [](auto x) {
        int sign;
        return lgamma_r(x, &sign);
      },
      [](auto x, auto, auto dy) { return dy * Digamma(x); });
}

// Piecewise linear functions.
void AddRectifiers(KernelTable* t) {
  Add(t, "abs", [](auto x) { return std::fabs(x); },
      [](auto x, auto, auto dy) { return dy * SignOf(x); });
  Add(t, "brelu", {"t_min", "t_max"},
      [](auto x, auto& a) { return x < a[0]   ? a[0]
                                   : x > a[1] ? a[1]
                                              : x; },
      [](auto x, auto, auto dy, auto& a) { return x > a[0] && x < a[1] ? dy : 0; });
  Add(t, "ceil", [](auto x) { return std::ceil(x); }, kFlat);
  Add(t, "floor", [](auto x) { return std::floor(x); }, kFlat);
  Add(t, "round", [](auto x) { return std::round(x); }, kFlat);
  Add(t, "hard_shrink", {"threshold"},
      [](auto x, auto& a) { return x > a[0] || x < -a[0] ? x : 0; },
      [](auto x, auto, auto dy, auto& a) { return x > a[0] || x < -a[0] ? dy : 0; });
  Add(t, "hard_sigmoid", {"slope", "offset"},
      [](auto x, auto& a) { return std::min(std::max(a[0] * x + a[1], 0.0), 1.0); },
      [](auto, auto y, auto dy, auto& a) { return y > 0 && y < 1 ? dy * a[0] : 0; });
  Add(t, "hard_swish", {"threshold", "scale", "offset"},
      [](auto x, auto& a) { return x * std::min(std::max(x + a[2], 0.0), a[0]) / a[1]; },
      [](auto x, auto, auto dy, auto& a) {
        return x <= -a[2] ? 0 : x < a[0] - a[2] ? dy * (2 * x + a[2]) / a[1] : dy * a[0] / a[1];
      });
  Add(t, "leaky_relu", {"alpha"},
      [](auto x, auto& a) { return x < 0 ? static_cast<decltype(x)>(a[0]) * x : x; },
      [](auto x, auto, auto dy, auto& a) {
        return x < 0 ? static_cast<decltype(x)>(a[0]) * dy : dy;
      });
  Add(t, "relu", [](auto x) { return x > 0 ? x : 0; },
      [](auto, auto y, auto dy) { return y > 0 ? dy : 0; });
  Add(t, "relu6", {"threshold"},
      [](auto x, auto& a) { return std::min(std::max<double>(x, 0), a[0]); },
      [](auto, auto y, auto dy, auto& a) {
        return y > 0 && y < static_cast<decltype(y)>(a[0]) ? dy : 0;
      });
  Add(t, "softshrink", {"lambda"},
      [](auto x, auto& a) { return x > a[0]    ? x - a[0]
                                   : x < -a[0] ? x + a[0]
                                               : 0; },
      [](auto x, auto, auto dy, auto& a) { return x > a[0] || x < -a[0] ? dy : 0; });
  Add(t, "trunc", [](auto x) { return std::trunc(x); }, kFlat);
  Add(t, "thresholded_relu", {"threshold"}, [](auto x, auto& a) { return x > a[0] ? x : 0; },
      [](auto x, auto, auto dy, auto& a) { return x > a[0] ? dy : 0; });
}

void AddSmoothRectifiers(KernelTable* t) {
  Add(t, "celu", {"alpha"}, [](auto x, auto& a) { return x > 0 ? x : a[0] * std::expm1(x / a[0]); },
      [](auto x, auto, auto dy, auto& a) { return x > 0 ? dy : dy * std::exp(x / a[0]); });
  Add(t, "elu", {"alpha"}, [](auto x, auto& a) { return x > 0 ? x : a[0] * std::expm1(double{x}); },
      [](auto x, auto, auto dy, auto& a) { return x > 0 ? dy : dy * a[0] * std::exp(double{x}); });
  Add(t, "logsigmoid", [](auto x) { return (x < 0 ? x : 0) - std::log1p(std::exp(-std::fabs(x))); },
      [](auto x, auto, auto dy) { return dy * Sigmoid(-x); });
  Add(t, "mish", {"threshold"}, [](auto x, auto& a) { return x * std::tanh(Softplus(x, a[0])); },
      [](auto x, auto, auto dy, auto& a) {
        const auto s = Softplus(x, a[0]);
        const auto y = std::tanh(s);
        return dy * (y + x * (1 - y * y) * (1 - std::exp(-s)));
      });
  Add(t, "selu", {"alpha", "scale"},
      [](auto x, auto& a) { return a[1] * (x > 0 ? x : a[0] * std::expm1(double{x})); },
      [](auto, auto y, auto dy, auto& a) { return dy * (y > 0 ? a[1] : y + a[0] * a[1]); });
  Add(t, "sigmoid", [](auto x) { return Sigmoid(x); },
      [](auto, auto y, auto dy) { return dy * y * (1 - y); });
  Add(t, "silu", [](auto x) { return x * Sigmoid(x); },
      [](auto x, auto, auto dy) {
        const auto s = Sigmoid(x);
        return dy * s * (1 + x * (1 - s));
      });
  Add(t, "softplus", {"beta", "threshold"},
      [](auto x, auto& a) { return Softplus(a[0] * x, a[1]) / a[0]; },
      [](auto x, auto, auto dy, auto& a) { return a[0] * x > a[1] ? dy : dy * Sigmoid(a[0] * x); });
  Add(t, "softsign", [](auto x) { return x / (1 + std::fabs(x)); },
      [](auto x, auto, auto dy) { return dy / ((1 + std::fabs(x)) * (1 + std::fabs(x))); });
  Add(t, "swish", {"beta"},
      [](auto x, auto& a) { return x * Sigmoid(static_cast<decltype(x)>(a[0]) * x); },
      [](auto x, auto, auto dy, auto& a) {
        const auto b = static_cast<decltype(x)>(a[0]);
        const auto s = Sigmoid(b * x);
        return dy * s * (1 + b * x * (1 - s));
      });
}
// clang-format on

// --- prelu ---------------------------------------------------------------------------------------

// The slope of prelu that applies to an element of X.
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

// Out = X if X > 0, else Alpha X.
absl::StatusOr<Kernel> Prelu(OpKernel op) {
  const In x = op.in("X"), alpha = op.in("Alpha");
  const Out out = op.out("Out");
  return op.InPlace(out, x).Make(Floats(x),
                                 [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
                                   using T = decltype(zero);
                                   const Slopes slope(attrs, x(ctx).dims());
                                   const T *xs = x.data<T>(ctx), *alphas = alpha.data<T>(ctx);
                                   T* to = out.data<T>(ctx);
                                   for (int64_t i = 0; i < x(ctx).size(); ++i) {
                                     to[i] = xs[i] > 0 ? xs[i] : alphas[slope(i)] * xs[i];
                                   }
                                 });
}

// X@GRAD = Out@GRAD if X > 0, else Alpha Out@GRAD. Alpha@GRAD = Σ X Out@GRAD over X <= 0.
absl::StatusOr<Kernel> PreluGrad(OpKernel op) {
  const In x = op.in("X"), alpha = op.in("Alpha"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dalpha = op.out("Alpha@GRAD");
  return op.Make(Floats(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
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

}  // namespace

void AddActivationKernels(KernelTable* table) {
  AddPowersAndLogarithms(table);
  AddTrigonometry(table);
  AddSpecialFunctions(table);
  AddRectifiers(table);
  AddSmoothRectifiers(table);
  table->Add("sign", Sign);
  table->Add("prelu", Prelu, PreluGrad);
}

}  // namespace weft
