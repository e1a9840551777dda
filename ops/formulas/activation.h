// Elementwise functions of one tensor and their derivatives, for all devices. A new one is a struct
// here, a row at the end, and a row in ops/schema/activation_schemas.cc.
//
// Out(x) is the function. One of these is X@GRAD, and its name says what the gradient op reads
// besides dout, the element of Out@GRAD:
//   GradFromX(x, dout), GradFromOut(out, dout), Grad(dout).
// A result may have another type than T; kernels cast it. A formula with attributes reads them in
// its constructor.
//
// Loops over these functions become vector loops (ops/vectorize.h). std::min and std::max do not
// exist on CUDA devices.
#ifndef WEFT_OPS_FORMULAS_ACTIVATION_H_
#define WEFT_OPS_FORMULAS_ACTIVATION_H_

#include <math.h>  // lgamma_r

#include <cmath>
#include <type_traits>
#include <utility>

#include "ops/host_device.h"
#include "ops/schema/op_attrs.h"

// A function of scalars of type T.
#define WEFT_FORMULA    \
  template <typename T> \
  WEFT_HOST_DEVICE

namespace weft::formulas {

// --- Parts of formulas ---------------------------------------------------------------------------

// As std::min and std::max: the first one if neither is less, or if one is NaN.
WEFT_HOST_DEVICE inline double Least(double a, double b) { return b < a ? b : a; }
WEFT_HOST_DEVICE inline double Greatest(double a, double b) { return a < b ? b : a; }

WEFT_FORMULA T LogisticOf(T x) { return 1 / (1 + std::exp(-x)); }

// log(1 + exp(x)), which is x for large x.
WEFT_FORMULA T SoftplusOf(T x, double threshold) {
  return x > threshold ? x : std::log1p(std::exp(x));
}

// NaN in, NaN out.
WEFT_FORMULA T SignOf(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x == 0 ? T(0) : x; }

// The logarithmic derivative of the gamma function; NaN at 0 and the negative integers. Relative
// error below 1e-13 away from zeros.
//
// Above 10 the asymptotic series (Abramowitz and Stegun 6.3.18, 6.4.12). The recurrence (6.3.5,
// 6.4.6) moves other positive arguments there, the reflection formula (6.3.7, 6.4.7) negative ones.
WEFT_HOST_DEVICE inline double DigammaOfPositive(double x) {
  double sum = 0;
  for (; x < 10; ++x) sum -= 1 / x;
  const double r = 1 / (x * x);
  const double series =
      r *
      (1.0 / 12 -
       r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132 - r * 691.0 / 32760)))));
  return sum + std::log(x) - 0.5 / x - series;
}
WEFT_HOST_DEVICE inline double DigammaOf(double x) {
  if (!(x <= 0)) return DigammaOfPositive(x);
  if (x == std::floor(x)) return NAN;
  return DigammaOfPositive(1 - x) - M_PI / std::tan(M_PI * x);
}

// The derivative of DigammaOf, by the same steps.
WEFT_HOST_DEVICE inline double TrigammaOfPositive(double x) {
  double sum = 0;
  for (; x < 10; ++x) sum += 1 / (x * x);
  const double r = 1 / (x * x);
  const double series =
      r * (1.0 / 6 - r * (1.0 / 30 - r * (1.0 / 42 - r * (1.0 / 30 - r * 5.0 / 66)))) / x;
  return sum + 1 / x + r / 2 + series;
}
WEFT_HOST_DEVICE inline double TrigammaOf(double x) {
  if (!(x <= 0)) return TrigammaOfPositive(x);
  if (x == std::floor(x)) return NAN;
  const double sine = std::sin(M_PI * x);
  return M_PI * M_PI / (sine * sine) - TrigammaOfPositive(1 - x);
}

// The derivative of a step function.
struct Flat {
  WEFT_FORMULA auto Grad(T) const { return 0; }
};

// One formula per line, if it fits.
// clang-format off

// --- Powers and logarithms -----------------------------------------------------------------------

struct Exp {
  WEFT_FORMULA auto Out(T x) const { return std::exp(x); }
  WEFT_FORMULA auto GradFromOut(T out, T dout) const { return dout * out; }
};

struct Expm1 {
  WEFT_FORMULA auto Out(T x) const { return std::expm1(x); }
  WEFT_FORMULA auto GradFromOut(T out, T dout) const { return dout * (out + 1); }
};

struct Log {
  WEFT_FORMULA auto Out(T x) const { return std::log(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout / x; }
};

struct Log10 {
  WEFT_FORMULA auto Out(T x) const { return std::log10(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout / (x * M_LN10); }
};

struct Log1p {
  WEFT_FORMULA auto Out(T x) const { return std::log1p(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout / (1 + x); }
};

struct Log2 {
  WEFT_FORMULA auto Out(T x) const { return std::log2(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout / (x * M_LN2); }
};

// log(x / (1 - x)), with x first moved into [eps, 1 - eps] unless eps is 0.
struct Logit {
  double eps;
  explicit Logit(const OpAttrs& attrs) : eps(attrs.Float("eps")) {}
  WEFT_FORMULA auto Out(T x) const {
    const double p = eps == 0 ? x : Least(Greatest(x, eps), 1 - eps);
    return p < 0 || p > 1 ? NAN : std::log(p / (1 - p));
  }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    return x < eps || x > 1 - eps ? 0 : dout / (double{x} * (1 - x));
  }
};

struct Power {
  double factor;
  explicit Power(const OpAttrs& attrs) : factor(attrs.Float("factor")) {}
  WEFT_FORMULA auto Out(T x) const { return std::pow(x, static_cast<T>(factor)); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    return dout * factor * std::pow(double{x}, factor - 1);
  }
};

struct Reciprocal {
  WEFT_FORMULA auto Out(T x) const { return 1 / x; }
  WEFT_FORMULA auto GradFromOut(T out, T dout) const { return -dout * out * out; }
};

struct Rsqrt {
  WEFT_FORMULA auto Out(T x) const { return 1 / std::sqrt(x); }
  WEFT_FORMULA auto GradFromOut(T out, T dout) const { return -dout * out * out * out / 2; }
};

struct Sqrt {
  WEFT_FORMULA auto Out(T x) const { return std::sqrt(x); }
  WEFT_FORMULA auto GradFromOut(T out, T dout) const { return dout / (2 * out); }
};

struct Square {
  WEFT_FORMULA auto Out(T x) const { return x * x; }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return 2 * x * dout; }
};

// --- Trigonometry --------------------------------------------------------------------------------

struct Acos {
  WEFT_FORMULA auto Out(T x) const { return std::acos(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return -dout / std::sqrt(1 - x * x); }
};

struct Acosh {
  WEFT_FORMULA auto Out(T x) const { return std::acosh(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout / std::sqrt(x * x - 1); }
};

struct Asin {
  WEFT_FORMULA auto Out(T x) const { return std::asin(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout / std::sqrt(1 - x * x); }
};

struct Asinh {
  WEFT_FORMULA auto Out(T x) const { return std::asinh(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout / std::sqrt(x * x + 1); }
};

struct Atan {
  WEFT_FORMULA auto Out(T x) const { return std::atan(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout / (1 + x * x); }
};

struct Atanh {
  WEFT_FORMULA auto Out(T x) const { return std::atanh(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout / (1 - x * x); }
};

struct Cos {
  WEFT_FORMULA auto Out(T x) const { return std::cos(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return -dout * std::sin(x); }
};

struct Cosh {
  WEFT_FORMULA auto Out(T x) const { return std::cosh(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout * std::sinh(x); }
};

struct Sin {
  WEFT_FORMULA auto Out(T x) const { return std::sin(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout * std::cos(x); }
};

struct Sinh {
  WEFT_FORMULA auto Out(T x) const { return std::sinh(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout * std::cosh(x); }
};

// LeCun et al., "Efficient BackProp" (1998).
struct Stanh {
  double scale_a, scale_b;
  explicit Stanh(const OpAttrs& attrs)
      : scale_a(attrs.Float("scale_a")), scale_b(attrs.Float("scale_b")) {}
  WEFT_FORMULA auto Out(T x) const { return scale_b * std::tanh(scale_a * x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    const double y = std::tanh(scale_a * x);
    return dout * scale_a * scale_b * (1 - y * y);
  }
};

struct Tan {
  WEFT_FORMULA auto Out(T x) const { return std::tan(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout * (1 + std::tan(x) * std::tan(x)); }
};

struct Tanh {
  WEFT_FORMULA auto Out(T x) const { return std::tanh(x); }
  WEFT_FORMULA auto GradFromOut(T out, T dout) const { return dout * (1 - out * out); }
};

struct TanhShrink {
  WEFT_FORMULA auto Out(T x) const { return x - std::tanh(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout * std::tanh(x) * std::tanh(x); }
};

// --- Special functions ---------------------------------------------------------------------------

struct Digamma {
  WEFT_FORMULA auto Out(T x) const { return DigammaOf(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout * TrigammaOf(x); }
};

struct Erf {
  WEFT_FORMULA auto Out(T x) const { return std::erf(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    return dout * static_cast<T>(M_2_SQRTPI) * std::exp(-x * x);
  }
};

// x times the standard normal distribution function, or its tanh approximation: Hendrycks and
// Gimpel, "Gaussian Error Linear Units" (2016).
struct Gelu {
  bool approximate;
  explicit Gelu(const OpAttrs& attrs) : approximate(attrs.Bool("approximate")) {}
  WEFT_FORMULA T Out(T x) const {
    constexpr T kRoot = static_cast<T>(0.79788456080286535588);  // sqrt(2 / pi)
    if (approximate) return x / 2 * (1 + std::tanh(kRoot * (x + T(0.044715) * x * x * x)));
    return x / 2 * (1 + std::erf(x * static_cast<T>(M_SQRT1_2)));
  }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout * Derivative(x); }

 private:
  WEFT_FORMULA T Derivative(T x) const {
    constexpr T kRoot = static_cast<T>(0.79788456080286535588);  // sqrt(2 / pi)
    if (approximate) {
      const T t = std::tanh(kRoot * (x + T(0.044715) * x * x * x));
      return (1 + t) / 2 + x / 2 * (1 - t * t) * kRoot * (1 + T(0.134145) * x * x);
    }
    return (1 + std::erf(x * static_cast<T>(M_SQRT1_2))) / 2 + x * kRoot / 2 * std::exp(-x * x / 2);
  }
};

struct Lgamma {
  WEFT_FORMULA double Out(T x) const {
#ifdef __CUDA_ARCH__
    return lgamma(double{x});
#else
    int sign;  // lgamma writes to a global variable
    return lgamma_r(x, &sign);
#endif
  }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout * DigammaOf(x); }
};

// --- Piecewise linear functions ------------------------------------------------------------------

struct Abs {
  WEFT_FORMULA auto Out(T x) const { return std::fabs(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout * SignOf(x); }
};

struct Brelu {
  double t_min, t_max;
  explicit Brelu(const OpAttrs& attrs) : t_min(attrs.Float("t_min")), t_max(attrs.Float("t_max")) {}
  WEFT_FORMULA auto Out(T x) const { return x < t_min ? t_min : x > t_max ? t_max : x; }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return x > t_min && x < t_max ? dout : 0; }
};

struct Ceil : Flat {
  WEFT_FORMULA auto Out(T x) const { return std::ceil(x); }
};

struct Floor : Flat {
  WEFT_FORMULA auto Out(T x) const { return std::floor(x); }
};

struct Round : Flat {
  WEFT_FORMULA auto Out(T x) const { return std::round(x); }
};

struct Trunc : Flat {
  WEFT_FORMULA auto Out(T x) const { return std::trunc(x); }
};

struct HardShrink {
  double threshold;
  explicit HardShrink(const OpAttrs& attrs) : threshold(attrs.Float("threshold")) {}
  WEFT_FORMULA auto Out(T x) const { return x > threshold || x < -threshold ? x : 0; }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    return x > threshold || x < -threshold ? dout : 0;
  }
};

struct HardSigmoid {
  double slope, offset;
  explicit HardSigmoid(const OpAttrs& attrs)
      : slope(attrs.Float("slope")), offset(attrs.Float("offset")) {}
  WEFT_FORMULA auto Out(T x) const { return Least(Greatest(slope * x + offset, 0), 1); }
  WEFT_FORMULA auto GradFromOut(T out, T dout) const {
    return out > 0 && out < 1 ? dout * slope : 0;
  }
};

// Howard et al., "Searching for MobileNetV3" (2019).
struct HardSwish {
  double threshold, scale, offset;
  explicit HardSwish(const OpAttrs& attrs)
      : threshold(attrs.Float("threshold")),
        scale(attrs.Float("scale")),
        offset(attrs.Float("offset")) {}
  WEFT_FORMULA auto Out(T x) const {
    return x * Least(Greatest(x + offset, 0), threshold) / scale;
  }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    return x <= -offset              ? 0
           : x < threshold - offset  ? dout * (2 * x + offset) / scale
                                     : dout * threshold / scale;
  }
};

// Maas, Hannun and Ng, "Rectifier Nonlinearities Improve Neural Network Acoustic Models" (2013).
struct LeakyRelu {
  double alpha;
  explicit LeakyRelu(const OpAttrs& attrs) : alpha(attrs.Float("alpha")) {}
  WEFT_FORMULA auto Out(T x) const { return x < 0 ? static_cast<T>(alpha) * x : x; }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    return x < 0 ? static_cast<T>(alpha) * dout : dout;
  }
};

// Nair and Hinton, "Rectified Linear Units Improve Restricted Boltzmann Machines" (2010).
struct Relu {
  WEFT_FORMULA auto Out(T x) const { return x > 0 ? x : 0; }
  WEFT_FORMULA auto GradFromOut(T out, T dout) const { return out > 0 ? dout : 0; }
};

struct Relu6 {
  double threshold;
  explicit Relu6(const OpAttrs& attrs) : threshold(attrs.Float("threshold")) {}
  WEFT_FORMULA auto Out(T x) const { return Least(Greatest(x, 0), threshold); }
  WEFT_FORMULA auto GradFromOut(T out, T dout) const {
    return out > 0 && out < static_cast<T>(threshold) ? dout : 0;
  }
};

struct SoftShrink {
  double lambda;
  explicit SoftShrink(const OpAttrs& attrs) : lambda(attrs.Float("lambda")) {}
  WEFT_FORMULA auto Out(T x) const {
    return x > lambda ? x - lambda : x < -lambda ? x + lambda : 0;
  }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return x > lambda || x < -lambda ? dout : 0; }
};

// Konda, Memisevic and Krueger, "Zero-bias Autoencoders and the Benefits of Co-adapting Features"
// (2014).
struct ThresholdedRelu {
  double threshold;
  explicit ThresholdedRelu(const OpAttrs& attrs) : threshold(attrs.Float("threshold")) {}
  WEFT_FORMULA auto Out(T x) const { return x > threshold ? x : 0; }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return x > threshold ? dout : 0; }
};

// The gradient op is a scale by 0.
struct Sign {
  WEFT_FORMULA auto Out(T x) const { return SignOf(x); }
};

// --- Smooth rectifiers ---------------------------------------------------------------------------

// Barron, "Continuously Differentiable Exponential Linear Units" (2017).
struct Celu {
  double alpha;
  explicit Celu(const OpAttrs& attrs) : alpha(attrs.Float("alpha")) {}
  WEFT_FORMULA auto Out(T x) const { return x > 0 ? x : alpha * std::expm1(x / alpha); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    return x > 0 ? dout : dout * std::exp(x / alpha);
  }
};

// Clevert, Unterthiner and Hochreiter, "Fast and Accurate Deep Network Learning by Exponential
// Linear Units (ELUs)" (2015).
struct Elu {
  double alpha;
  explicit Elu(const OpAttrs& attrs) : alpha(attrs.Float("alpha")) {}
  WEFT_FORMULA auto Out(T x) const { return x > 0 ? x : alpha * std::expm1(double{x}); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    return x > 0 ? dout : dout * alpha * std::exp(double{x});
  }
};

struct LogSigmoid {
  WEFT_FORMULA auto Out(T x) const { return (x < 0 ? x : 0) - std::log1p(std::exp(-std::fabs(x))); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const { return dout * LogisticOf(-x); }
};

// Misra, "Mish: A Self Regularized Non-Monotonic Activation Function" (2019).
struct Mish {
  double threshold;
  explicit Mish(const OpAttrs& attrs) : threshold(attrs.Float("threshold")) {}
  WEFT_FORMULA auto Out(T x) const { return x * std::tanh(SoftplusOf(x, threshold)); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    const auto s = SoftplusOf(x, threshold);
    const auto y = std::tanh(s);
    return dout * (y + x * (1 - y * y) * (1 - std::exp(-s)));
  }
};

// Klambauer et al., "Self-Normalizing Neural Networks" (2017).
struct Selu {
  double alpha, scale;
  explicit Selu(const OpAttrs& attrs) : alpha(attrs.Float("alpha")), scale(attrs.Float("scale")) {}
  WEFT_FORMULA auto Out(T x) const { return scale * (x > 0 ? x : alpha * std::expm1(double{x})); }
  WEFT_FORMULA auto GradFromOut(T out, T dout) const {
    return dout * (out > 0 ? scale : out + alpha * scale);
  }
};

struct Sigmoid {
  WEFT_FORMULA auto Out(T x) const { return LogisticOf(x); }
  WEFT_FORMULA auto GradFromOut(T out, T dout) const { return dout * out * (1 - out); }
};

// Elfwing, Uchibe and Doya, "Sigmoid-Weighted Linear Units for Neural Network Function
// Approximation in Reinforcement Learning" (2017).
struct Silu {
  WEFT_FORMULA auto Out(T x) const { return x * LogisticOf(x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    const auto s = LogisticOf(x);
    return dout * s * (1 + x * (1 - s));
  }
};

struct Softplus {
  double beta, threshold;
  explicit Softplus(const OpAttrs& attrs)
      : beta(attrs.Float("beta")), threshold(attrs.Float("threshold")) {}
  WEFT_FORMULA auto Out(T x) const { return SoftplusOf(beta * x, threshold) / beta; }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    return beta * x > threshold ? dout : dout * LogisticOf(beta * x);
  }
};

struct Softsign {
  WEFT_FORMULA auto Out(T x) const { return x / (1 + std::fabs(x)); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    return dout / ((1 + std::fabs(x)) * (1 + std::fabs(x)));
  }
};

// Ramachandran et al., "Searching for Activation Functions" (2017).
struct Swish {
  double beta;
  explicit Swish(const OpAttrs& attrs) : beta(attrs.Float("beta")) {}
  WEFT_FORMULA auto Out(T x) const { return x * LogisticOf(static_cast<T>(beta) * x); }
  WEFT_FORMULA auto GradFromX(T x, T dout) const {
    const auto b = static_cast<T>(beta);
    const auto s = LogisticOf(b * x);
    return dout * s * (1 + b * x * (1 - s));
  }
};
// clang-format on

// --- For kernels ---------------------------------------------------------------------------------

// With the attributes of an op.
template <typename F>
F Make(const OpAttrs& attrs) {
  if constexpr (std::is_constructible_v<F, const OpAttrs&>) {
    return F(attrs);
  } else {
    return F();
  }
}

template <typename F, typename = void>
struct ReadsX : std::false_type {};
template <typename F>
struct ReadsX<F, std::void_t<decltype(std::declval<F>().GradFromX(1.0, 1.0))>> : std::true_type {};

template <typename F, typename = void>
struct ReadsOut : std::false_type {};
template <typename F>
struct ReadsOut<F, std::void_t<decltype(std::declval<F>().GradFromOut(1.0, 1.0))>>
    : std::true_type {};

template <typename F>
struct OutOf {
  F f;
  WEFT_FORMULA auto operator()(T x) const { return f.Out(x); }
};

// X@GRAD from elements of slot kReads and of Out@GRAD.
template <typename F>
struct XGradOf {
  static_assert(!ReadsX<F>::value || !ReadsOut<F>::value, "one derivative");
  F f;
  static constexpr const char* kReads = ReadsX<F>::value     ? "X"
                                        : ReadsOut<F>::value ? "Out"
                                                             : "Out@GRAD";
  WEFT_FORMULA auto operator()(T read, T dout) const {
    if constexpr (ReadsX<F>::value) {
      return f.GradFromX(read, dout);
    } else if constexpr (ReadsOut<F>::value) {
      return f.GradFromOut(read, dout);
    } else {
      return f.Grad(dout);
    }
  }
};

// Calls visit(type, Tag<formula>()) for every op with a gradient op.
template <typename F>
struct Tag {
  using Formula = F;
};
template <typename Visit>
void ForEachActivation(const Visit& visit) {
  visit("abs", Tag<Abs>());
  visit("acos", Tag<Acos>());
  visit("acosh", Tag<Acosh>());
  visit("asin", Tag<Asin>());
  visit("asinh", Tag<Asinh>());
  visit("atan", Tag<Atan>());
  visit("atanh", Tag<Atanh>());
  visit("brelu", Tag<Brelu>());
  visit("ceil", Tag<Ceil>());
  visit("celu", Tag<Celu>());
  visit("cos", Tag<Cos>());
  visit("cosh", Tag<Cosh>());
  visit("digamma", Tag<Digamma>());
  visit("elu", Tag<Elu>());
  visit("erf", Tag<Erf>());
  visit("exp", Tag<Exp>());
  visit("expm1", Tag<Expm1>());
  visit("floor", Tag<Floor>());
  visit("gelu", Tag<Gelu>());
  visit("hard_shrink", Tag<HardShrink>());
  visit("hard_sigmoid", Tag<HardSigmoid>());
  visit("hard_swish", Tag<HardSwish>());
  visit("leaky_relu", Tag<LeakyRelu>());
  visit("lgamma", Tag<Lgamma>());
  visit("log", Tag<Log>());
  visit("log10", Tag<Log10>());
  visit("log1p", Tag<Log1p>());
  visit("log2", Tag<Log2>());
  visit("logit", Tag<Logit>());
  visit("logsigmoid", Tag<LogSigmoid>());
  visit("mish", Tag<Mish>());
  visit("pow", Tag<Power>());
  visit("reciprocal", Tag<Reciprocal>());
  visit("relu", Tag<Relu>());
  visit("relu6", Tag<Relu6>());
  visit("round", Tag<Round>());
  visit("rsqrt", Tag<Rsqrt>());
  visit("selu", Tag<Selu>());
  visit("sigmoid", Tag<Sigmoid>());
  visit("silu", Tag<Silu>());
  visit("sin", Tag<Sin>());
  visit("sinh", Tag<Sinh>());
  visit("softplus", Tag<Softplus>());
  visit("softshrink", Tag<SoftShrink>());
  visit("softsign", Tag<Softsign>());
  visit("sqrt", Tag<Sqrt>());
  visit("square", Tag<Square>());
  visit("stanh", Tag<Stanh>());
  visit("swish", Tag<Swish>());
  visit("tan", Tag<Tan>());
  visit("tanh", Tag<Tanh>());
  visit("tanh_shrink", Tag<TanhShrink>());
  visit("thresholded_relu", Tag<ThresholdedRelu>());
  visit("trunc", Tag<Trunc>());
}

}  // namespace weft::formulas

#undef WEFT_FORMULA

#endif  // WEFT_OPS_FORMULAS_ACTIVATION_H_
