// Elementwise functions of one tensor: a table of formulas. A new one is a row here and one in
// ops/schema/activation_schemas.cc.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ops/cpu/digamma.h"
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
  table->Add(type, [=](const KernelSpec& spec) {
    OpKernel op(spec);
    const In x = op.in("X");
    const Out out = op.out("Out");
    return op.InPlace().Make(Floats(x),
                             [=, a = ReadAttrs(spec, attrs)](const KernelContext& ctx, auto zero) {
                               using T = decltype(zero);
                               const T* xs = x.data<T>(ctx);
                               T* to = out.data<T>(ctx);
                               const int64_t size = x(ctx).size();
                               for (int64_t i = 0; i < size; ++i)
                                 to[i] = static_cast<T>(f(xs[i], a));
                             });
  });
  table->Add(type + "_grad", [=](const KernelSpec& spec) {
    OpKernel op(spec);
    const In dout = op.in("Out@GRAD");
    // An unread input may stand for any value.
    const In x = spec.Input("X") >= 0 ? op.in("X") : dout;
    const In y = spec.Input("Out") >= 0 ? op.in("Out") : dout;
    const Out dx = op.out("X@GRAD");
    return op.InPlace().Make(
        Floats(dout), [=, a = ReadAttrs(spec, attrs)](const KernelContext& ctx, auto zero) {
          using T = decltype(zero);
          const T *xs = x.data<T>(ctx), *ys = y.data<T>(ctx), *dys = dout.data<T>(ctx);
          T* to = dx.data<T>(ctx);
          const int64_t size = dout(ctx).size();
          for (int64_t i = 0; i < size; ++i) to[i] = static_cast<T>(df(xs[i], ys[i], dys[i], a));
        });
  });
}

constexpr double kPi = 3.14159265358979323846;

template <typename T>
T Sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

// log(1 + exp(x)), which is x for large x.
template <typename T>
T Softplus(T x, double threshold) {
  return x > threshold ? x : std::log1p(std::exp(x));
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
absl::StatusOr<Kernel> Sign(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    for (int64_t i = 0; i < x(ctx).size(); ++i) to[i] = SignOf(from[i]);
  });
}

// clang-format off: one formula per line
void AddPowersAndLogarithms(KernelTable* t) {
  Add(
      t, "exp", {}, [](auto x, auto&) { return std::exp(x); },
      [](auto, auto y, auto dy, auto&) { return dy * y; });
  Add(
      t, "expm1", {}, [](auto x, auto&) { return std::expm1(x); },
      [](auto, auto y, auto dy, auto&) { return dy * (y + 1); });
  Add(
      t, "log", {}, [](auto x, auto&) { return std::log(x); },
      [](auto x, auto, auto dy, auto&) { return dy / x; });
  Add(
      t, "log10", {}, [](auto x, auto&) { return std::log10(x); },
      [](auto x, auto, auto dy, auto&) { return dy / (x * M_LN10); });
  Add(
      t, "log1p", {}, [](auto x, auto&) { return std::log1p(x); },
      [](auto x, auto, auto dy, auto&) { return dy / (1 + x); });
  Add(
      t, "log2", {}, [](auto x, auto&) { return std::log2(x); },
      [](auto x, auto, auto dy, auto&) { return dy / (x * M_LN2); });
  Add(
      t, "logit", {"eps"},
      [](auto x, auto& a) {
        const double p = a[0] == 0 ? x : std::min(std::max<double>(x, a[0]), 1 - a[0]);
        return p < 0 || p > 1 ? NAN : std::log(p / (1 - p));
      },
      [](auto x, auto, auto dy, auto& a) {
        return x < a[0] || x > 1 - a[0] ? 0 : dy / (double{x} * (1 - x));
      });
  Add(
      t, "pow", {"factor"},
      [](auto x, auto& a) { return std::pow(x, static_cast<decltype(x)>(a[0])); },
      [](auto x, auto, auto dy, auto& a) { return dy * a[0] * std::pow(double{x}, a[0] - 1); });
  Add(
      t, "reciprocal", {}, [](auto x, auto&) { return 1 / x; },
      [](auto, auto y, auto dy, auto&) { return -dy * y * y; });
  Add(
      t, "rsqrt", {}, [](auto x, auto&) { return 1 / std::sqrt(x); },
      [](auto, auto y, auto dy, auto&) { return -dy * y * y * y / 2; });
  Add(
      t, "sqrt", {}, [](auto x, auto&) { return std::sqrt(x); },
      [](auto, auto y, auto dy, auto&) { return dy / (2 * y); });
  Add(
      t, "square", {}, [](auto x, auto&) { return x * x; },
      [](auto x, auto, auto dy, auto&) { return 2 * x * dy; });
}

void AddTrigonometry(KernelTable* t) {
  Add(
      t, "acos", {}, [](auto x, auto&) { return std::acos(x); },
      [](auto x, auto, auto dy, auto&) { return -dy / std::sqrt(1 - x * x); });
  Add(
      t, "acosh", {}, [](auto x, auto&) { return std::acosh(x); },
      [](auto x, auto, auto dy, auto&) { return dy / std::sqrt(x * x - 1); });
  Add(
      t, "asin", {}, [](auto x, auto&) { return std::asin(x); },
      [](auto x, auto, auto dy, auto&) { return dy / std::sqrt(1 - x * x); });
  Add(
      t, "asinh", {}, [](auto x, auto&) { return std::asinh(x); },
      [](auto x, auto, auto dy, auto&) { return dy / std::sqrt(x * x + 1); });
  Add(
      t, "atan", {}, [](auto x, auto&) { return std::atan(x); },
      [](auto x, auto, auto dy, auto&) { return dy / (1 + x * x); });
  Add(
      t, "atanh", {}, [](auto x, auto&) { return std::atanh(x); },
      [](auto x, auto, auto dy, auto&) { return dy / (1 - x * x); });
  Add(
      t, "cos", {}, [](auto x, auto&) { return std::cos(x); },
      [](auto x, auto, auto dy, auto&) { return -dy * std::sin(x); });
  Add(
      t, "cosh", {}, [](auto x, auto&) { return std::cosh(x); },
      [](auto x, auto, auto dy, auto&) { return dy * std::sinh(x); });
  Add(
      t, "sin", {}, [](auto x, auto&) { return std::sin(x); },
      [](auto x, auto, auto dy, auto&) { return dy * std::cos(x); });
  Add(
      t, "sinh", {}, [](auto x, auto&) { return std::sinh(x); },
      [](auto x, auto, auto dy, auto&) { return dy * std::cosh(x); });
  Add(
      t, "stanh", {"scale_a", "scale_b"},
      [](auto x, auto& a) { return a[1] * std::tanh(a[0] * x); },
      [](auto x, auto, auto dy, auto& a) {
        const double y = std::tanh(a[0] * x);
        return dy * a[0] * a[1] * (1 - y * y);
      });
  Add(
      t, "tan", {}, [](auto x, auto&) { return std::tan(x); },
      [](auto x, auto, auto dy, auto&) { return dy * (1 + std::tan(x) * std::tan(x)); });
  Add(
      t, "tanh", {}, [](auto x, auto&) { return std::tanh(x); },
      [](auto, auto y, auto dy, auto&) { return dy * (1 - y * y); });
  Add(
      t, "tanh_shrink", {}, [](auto x, auto&) { return x - std::tanh(x); },
      [](auto x, auto, auto dy, auto&) { return dy * std::tanh(x) * std::tanh(x); });
}

void AddSpecialFunctions(KernelTable* t) {
  Add(
      t, "digamma", {}, [](auto x, auto&) { return Digamma(x); },
      [](auto x, auto, auto dy, auto&) { return dy * Trigamma(x); });
  Add(
      t, "erf", {}, [](auto x, auto&) { return std::erf(x); },
      [](auto x, auto, auto dy, auto&) {
        return dy * static_cast<decltype(x)>(M_2_SQRTPI) * std::exp(-x * x);
      });
  Add(
      t, "erfinv", {}, [](auto x, auto&) { return Erfinv(x); },
      [](auto, auto y, auto dy, auto&) {
        return dy * std::sqrt(kPi) / 2 * std::exp(double{y} * y);
      });
  Add(
      t, "gelu", {"approximate"}, [](auto x, auto& a) { return Gelu(x, a[0] != 0); },
      [](auto x, auto, auto dy, auto& a) { return dy * GeluDerivative(x, a[0] != 0); });
  Add(
      t, "lgamma", {},
      [](auto x, auto&) {
        int sign;
        return lgamma_r(x, &sign);
      },
      [](auto x, auto, auto dy, auto&) { return dy * Digamma(x); });
}

// Piecewise linear functions.
void AddRectifiers(KernelTable* t) {
  Add(
      t, "abs", {}, [](auto x, auto&) { return std::fabs(x); },
      [](auto x, auto, auto dy, auto&) { return dy * SignOf(x); });
  Add(
      t, "brelu", {"t_min", "t_max"},
      [](auto x, auto& a) { return x < a[0]   ? a[0]
                                   : x > a[1] ? a[1]
                                              : x; },
      [](auto x, auto, auto dy, auto& a) { return x > a[0] && x < a[1] ? dy : 0; });
  Add(
      t, "ceil", {}, [](auto x, auto&) { return std::ceil(x); },
      [](auto, auto, auto, auto&) { return 0; });
  Add(
      t, "floor", {}, [](auto x, auto&) { return std::floor(x); },
      [](auto, auto, auto, auto&) { return 0; });
  Add(
      t, "round", {}, [](auto x, auto&) { return std::round(x); },
      [](auto, auto, auto, auto&) { return 0; });
  Add(
      t, "hard_shrink", {"threshold"},
      [](auto x, auto& a) { return x > a[0] || x < -a[0] ? x : 0; },
      [](auto x, auto, auto dy, auto& a) { return x > a[0] || x < -a[0] ? dy : 0; });
  Add(
      t, "hard_sigmoid", {"slope", "offset"},
      [](auto x, auto& a) { return std::min(std::max(a[0] * x + a[1], 0.0), 1.0); },
      [](auto, auto y, auto dy, auto& a) { return y > 0 && y < 1 ? dy * a[0] : 0; });
  Add(
      t, "hard_swish", {"threshold", "scale", "offset"},
      [](auto x, auto& a) { return x * std::min(std::max(x + a[2], 0.0), a[0]) / a[1]; },
      [](auto x, auto, auto dy, auto& a) {
        return x <= -a[2] ? 0 : x < a[0] - a[2] ? dy * (2 * x + a[2]) / a[1] : dy * a[0] / a[1];
      });
  Add(
      t, "leaky_relu", {"alpha"},
      [](auto x, auto& a) { return x < 0 ? static_cast<decltype(x)>(a[0]) * x : x; },
      [](auto x, auto, auto dy, auto& a) {
        return x < 0 ? static_cast<decltype(x)>(a[0]) * dy : dy;
      });
  Add(
      t, "relu", {}, [](auto x, auto&) { return x > 0 ? x : 0; },
      [](auto, auto y, auto dy, auto&) { return y > 0 ? dy : 0; });
  Add(
      t, "relu6", {"threshold"},
      [](auto x, auto& a) { return std::min(std::max<double>(x, 0), a[0]); },
      [](auto, auto y, auto dy, auto& a) {
        return y > 0 && y < static_cast<decltype(y)>(a[0]) ? dy : 0;
      });
  Add(
      t, "softshrink", {"lambda"},
      [](auto x, auto& a) { return x > a[0]    ? x - a[0]
                                   : x < -a[0] ? x + a[0]
                                               : 0; },
      [](auto x, auto, auto dy, auto& a) { return x > a[0] || x < -a[0] ? dy : 0; });
  Add(
      t, "trunc", {}, [](auto x, auto&) { return std::trunc(x); },
      [](auto, auto, auto, auto&) { return 0; });
  Add(
      t, "thresholded_relu", {"threshold"}, [](auto x, auto& a) { return x > a[0] ? x : 0; },
      [](auto x, auto, auto dy, auto& a) { return x > a[0] ? dy : 0; });
}

void AddSmoothRectifiers(KernelTable* t) {
  Add(
      t, "celu", {"alpha"}, [](auto x, auto& a) { return x > 0 ? x : a[0] * std::expm1(x / a[0]); },
      [](auto x, auto, auto dy, auto& a) { return x > 0 ? dy : dy * std::exp(x / a[0]); });
  Add(
      t, "elu", {"alpha"}, [](auto x, auto& a) { return x > 0 ? x : a[0] * std::expm1(double{x}); },
      [](auto x, auto, auto dy, auto& a) { return x > 0 ? dy : dy * a[0] * std::exp(double{x}); });
  Add(
      t, "logsigmoid", {},
      [](auto x, auto&) { return (x < 0 ? x : 0) - std::log1p(std::exp(-std::fabs(x))); },
      [](auto x, auto, auto dy, auto&) { return dy * Sigmoid(-x); });
  Add(
      t, "mish", {"threshold"}, [](auto x, auto& a) { return x * std::tanh(Softplus(x, a[0])); },
      [](auto x, auto, auto dy, auto& a) {
        const auto s = Softplus(x, a[0]);
        const auto y = std::tanh(s);
        return dy * (y + x * (1 - y * y) * (1 - std::exp(-s)));
      });
  Add(
      t, "selu", {"alpha", "scale"},
      [](auto x, auto& a) { return a[1] * (x > 0 ? x : a[0] * std::expm1(double{x})); },
      [](auto, auto y, auto dy, auto& a) { return dy * (y > 0 ? a[1] : y + a[0] * a[1]); });
  Add(
      t, "sigmoid", {}, [](auto x, auto&) { return Sigmoid(x); },
      [](auto, auto y, auto dy, auto&) { return dy * y * (1 - y); });
  Add(
      t, "silu", {}, [](auto x, auto&) { return x * Sigmoid(x); },
      [](auto x, auto, auto dy, auto&) {
        const auto s = Sigmoid(x);
        return dy * s * (1 + x * (1 - s));
      });
  Add(
      t, "softplus", {"beta", "threshold"},
      [](auto x, auto& a) { return Softplus(a[0] * x, a[1]) / a[0]; },
      [](auto x, auto, auto dy, auto& a) { return a[0] * x > a[1] ? dy : dy * Sigmoid(a[0] * x); });
  Add(
      t, "softsign", {}, [](auto x, auto&) { return x / (1 + std::fabs(x)); },
      [](auto x, auto, auto dy, auto&) { return dy / ((1 + std::fabs(x)) * (1 + std::fabs(x))); });
  Add(
      t, "swish", {"beta"},
      [](auto x, auto& a) { return x * Sigmoid(static_cast<decltype(x)>(a[0]) * x); },
      [](auto x, auto, auto dy, auto& a) {
        const auto b = static_cast<decltype(x)>(a[0]);
        const auto s = Sigmoid(b * x);
        return dy * s * (1 + b * x * (1 - s));
      });
}
// clang-format on

}  // namespace

void AddActivationKernels(KernelTable* table) {
  AddPowersAndLogarithms(table);
  AddTrigonometry(table);
  AddSpecialFunctions(table);
  AddRectifiers(table);
  AddSmoothRectifiers(table);
  table->Add("sign", Sign);
}

}  // namespace weft
