// Bessel and polygamma functions, element by element, and signs of another tensor. They are
// computed in double precision.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/extra/families.h"
#include "ops/formulas/activation.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- Modified Bessel functions of the first kind -------------------------------------------------

// exp(-|x|) times the function of that order, 0 or 1: the series about 0 (Abramowitz and Stegun
// 9.6.10), all of whose terms have one sign, or the asymptotic one (9.7.1), whose least term is
// below the precision from 20 on.
double ScaledBessel(int order, double x) {
  const double a = std::fabs(x);
  double sum, scale;
  if (a < 20) {
    double term = order == 0 ? 1 : a / 2;
    sum = term;
    for (int k = 1; term > sum * 1e-17; ++k) {
      term *= a * a / 4 / (k * (k + order));
      sum += term;
    }
    scale = std::exp(-a);
  } else {
    double term = 1;
    sum = term;
    for (int k = 1; k <= 30; ++k) {
      const double odd = 2 * k - 1;
      term *= (odd * odd - 4 * order) / (8 * a * k);
      sum += term;
    }
    scale = 1 / std::sqrt(2 * M_PI * a);
  }
  return order == 1 && x < 0 ? -scale * sum : scale * sum;
}
double Bessel(int order, double x) { return std::exp(std::fabs(x)) * ScaledBessel(order, x); }

// The quotient of a function of order 1, or of its multiple, and x; its limit at 0.
double OverX(double function, double x) { return x == 0 ? 0.5 : function / x; }

struct I0 {
  static double Out(double x) { return Bessel(0, x); }
  static double Slope(double x) { return Bessel(1, x); }
};
struct I1 {
  static double Out(double x) { return Bessel(1, x); }
  static double Slope(double x) { return Bessel(0, x) - OverX(Bessel(1, x), x); }
};
// Has an edge at 0: the slope there is that of the side whose sign 0 has.
struct I0e {
  static double Out(double x) { return ScaledBessel(0, x); }
  static double Slope(double x) {
    return ScaledBessel(1, x) - std::copysign(ScaledBessel(0, x), x);
  }
};
struct I1e {
  static double Out(double x) { return ScaledBessel(1, x); }
  static double Slope(double x) {
    const double y = ScaledBessel(1, x);
    return ScaledBessel(0, x) - OverX(y, x) - std::fabs(y);
  }
};

template <typename F>
absl::StatusOr<Kernel> Forward(OpKernel op) {
  const In x = op.in("x");
  return op.InPlace().MakeElementwise(
      Floats(x), op.out("out"), [](double v) { return F::Out(v); }, x);
}

template <typename F>
absl::StatusOr<Kernel> Backward(OpKernel op) {
  if (op.spec().schema->FindInput("out") != nullptr) op.Ignore({"out"});
  const In x = op.in("x"), dout = op.in("out@GRAD");
  return op.InPlace().MakeElementwise(
      Floats(dout), op.out("x@GRAD"), [](double v, double dy) { return dy * F::Slope(v); }, x,
      dout);
}

// --- polygamma -----------------------------------------------------------------------------------

// The sum of (q + k)^-s over k >= 0, for s >= 2 and q > 0: of the first terms, and of the rest by
// the formula of Euler and Maclaurin.
double ZetaOfPositive(double s, double q) {
  // B(2j) / (2j)!.
  constexpr double kCoefficients[] = {1.0 / 12,         -1.0 / 720,     1.0 / 30240,
                                      -1.0 / 1209600,   1.0 / 47900160, -691.0 / 1307674368000,
                                      1.0 / 74724249600};
  double sum = 0;
  for (; q < 12; ++q) sum += std::pow(q, -s);
  sum += std::pow(q, 1 - s) / (s - 1) + std::pow(q, -s) / 2;
  double factor = s * std::pow(q, -s - 1);
  for (size_t j = 0; j < std::size(kCoefficients); ++j) {
    sum += kCoefficients[j] * factor;
    factor *= (s + 2 * j + 1) * (s + 2 * j + 2) / (q * q);
  }
  return sum;
}

// The same for an integer s and any q; infinite at 0 and the negative integers. The terms below 0
// are those from `fraction` up to -q, with their signs.
double HurwitzZeta(int64_t s, double q) {
  if (!(q <= 0)) return ZetaOfPositive(s, q);
  const double fraction = -q - std::floor(-q);
  if (fraction == 0) return std::numeric_limits<double>::infinity();
  const double below = ZetaOfPositive(s, fraction) - ZetaOfPositive(s, 1 - q);
  return ZetaOfPositive(s, 1 - fraction) + (s % 2 == 0 ? below : -below);
}

// The derivative of order n of the digamma function (Abramowitz and Stegun 6.4.10).
double Polygamma(int64_t n, double x) {
  if (n == 0) return formulas::DigammaOf(x);
  const double size = std::tgamma(static_cast<double>(n) + 1) * HurwitzZeta(n + 1, x);
  return n % 2 == 1 ? size : -size;
}

absl::StatusOr<Kernel> PolygammaForward(OpKernel op) {
  const In x = op.in("x");
  const int64_t n = op.attrs().Int("n");
  return op.InPlace().MakeElementwise(
      Floats(x), op.out("out"), [n](double v) { return Polygamma(n, v); }, x);
}

absl::StatusOr<Kernel> PolygammaGrad(OpKernel op) {
  const In x = op.in("x"), dout = op.in("out@GRAD");
  const int64_t n = op.attrs().Int("n");
  return op.InPlace().MakeElementwise(
      Floats(dout), op.out("x@GRAD"), [n](double v, double dy) { return dy * Polygamma(n + 1, v); },
      x, dout);
}

// --- copysign ------------------------------------------------------------------------------------

// out = |x| with the sign of y.
absl::StatusOr<Kernel> Copysign(OpKernel op) {
  const In x = op.in("x"), y = op.in("y");
  const Out out = op.out("out");
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                          AlignShapes(x(ctx).dims(), y(ctx).dims(), /*axis=*/-1));
    MapBroadcast(shapes, x.data<T>(ctx), y.data<T>(ctx), out.data<T>(ctx),
                 [](T a, T b) { return std::copysign(a, b); });
    return absl::OkStatus();
  });
}

// x@GRAD = out@GRAD, negated where the signs of x and y differ, and 0 where x is 0; summed over
// broadcast dimensions. y@GRAD = 0.
absl::StatusOr<Kernel> CopysignGrad(OpKernel op) {
  const In x = op.in("x"), y = op.in("y"), dout = op.in("out@GRAD");
  const Out dx = op.out("x@GRAD"), dy = op.out("y@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    if (T* to = dy.data_or_null<T>(ctx)) std::fill_n(to, dy(ctx).size(), T(0));
    T* const to = dx.data_or_null<T>(ctx);
    if (to == nullptr) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                          AlignShapes(x(ctx).dims(), y(ctx).dims(), /*axis=*/-1));
    std::vector<T> full(dout(ctx).size());
    MapBroadcast(shapes, x.data<T>(ctx), y.data<T>(ctx), full.data(),
                 [](T a, T b) { return a == 0 ? T(0) : std::copysign(a, b) / a; });
    const T* from = dout.data<T>(ctx);
    for (size_t i = 0; i < full.size(); ++i) full[i] *= from[i];
    SumBroadcast(full.data(), shapes.out, shapes.x, 1, to);
    return absl::OkStatus();
  });
}

}  // namespace

void AddSpecialFunctionKernels(KernelTable* table) {
  table->Add("i0", Forward<I0>, Backward<I0>);
  table->Add("i0e", Forward<I0e>, Backward<I0e>);
  table->Add("i1", Forward<I1>, Backward<I1>);
  table->Add("i1e", Forward<I1e>, Backward<I1e>);
  table->Add("polygamma", PolygammaForward, PolygammaGrad);
  table->Add("copysign", Copysign, CopysignGrad);
}

}  // namespace weft
