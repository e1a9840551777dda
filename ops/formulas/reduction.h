// Reductions of numbers to one, for all devices: of A = double or, for integers, int64_t. Start()
// and Of(x) for every element are joined, in any order: Join(Start(), a) is a. End gives the
// result, of n elements. Gradient is d result / d x times dy. kAdds: Join adds.
#ifndef WEFT_OPS_FORMULAS_REDUCTION_H_
#define WEFT_OPS_FORMULAS_REDUCTION_H_

#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/host_device.h"
#include "ops/kernel_util.h"

namespace weft::formulas {

template <typename A>
struct Sum {
  static constexpr bool kAdds = true;
  static A Start() { return 0; }
  WEFT_HOST_DEVICE static A Of(A x) { return x; }
  WEFT_HOST_DEVICE static A Join(A sum, A x) { return static_cast<A>(Wrapping(sum) + Wrapping(x)); }
  WEFT_HOST_DEVICE static A End(A sum, double) { return sum; }
  WEFT_HOST_DEVICE static double Gradient(double, double, double dy, double) { return dy; }
};

template <typename A>
struct Mean : Sum<A> {
  // 0 for no integers. The quotient by 2 or more is in their range.
  WEFT_HOST_DEVICE static A End(A sum, double n) {
    if (std::is_integral_v<A> && n < 2) return n == 0 ? 0 : sum;
    return static_cast<A>(sum / n);
  }
  WEFT_HOST_DEVICE static double Gradient(double, double, double dy, double n) { return dy / n; }
};

template <typename A>
struct Max : Sum<A> {
  static constexpr bool kAdds = false;
  static A Start() {
    return std::is_integral_v<A> ? std::numeric_limits<A>::min()
                                 : -std::numeric_limits<A>::infinity();
  }
  WEFT_HOST_DEVICE static A Join(A largest, A x) { return x > largest || x != x ? x : largest; }
  WEFT_HOST_DEVICE static double Gradient(double x, double y, double dy, double) {
    return x == y ? dy : 0;
  }
};

template <typename A>
struct Min : Max<A> {
  static A Start() {
    return std::is_integral_v<A> ? std::numeric_limits<A>::max()
                                 : std::numeric_limits<A>::infinity();
  }
  WEFT_HOST_DEVICE static A Join(A smallest, A x) { return x < smallest || x != x ? x : smallest; }
};

template <typename A>
struct Prod : Sum<A> {
  static constexpr bool kAdds = false;
  static A Start() { return 1; }
  WEFT_HOST_DEVICE static A Join(A product, A x) {
    return static_cast<A>(Wrapping(product) * Wrapping(x));
  }
  // The value that Paddle returns.
  WEFT_HOST_DEVICE static double Gradient(double x, double y, double dy, double) {
    return dy * y / x;
  }
};

template <typename A>
struct Any : Sum<A> {
  static constexpr bool kAdds = false;
  WEFT_HOST_DEVICE static A Of(A x) { return x != 0; }
  WEFT_HOST_DEVICE static A Join(A any, A x) { return any != 0 || x != 0; }
};

template <typename A>
struct All : Sum<A> {
  static constexpr bool kAdds = false;
  static A Start() { return 1; }
  WEFT_HOST_DEVICE static A Of(A x) { return x != 0; }
  WEFT_HOST_DEVICE static A Join(A all, A x) { return all != 0 && x != 0; }
};

template <typename A>
struct SumOfAbsolutes : Sum<A> {
  WEFT_HOST_DEVICE static A Of(A x) { return x < 0 ? -x : x; }
  WEFT_HOST_DEVICE static double Gradient(double x, double, double dy, double) {
    return x > 0 ? dy : x < 0 ? -dy : 0;
  }
};

template <typename A>
struct SumOfSquaresOf : Sum<A> {
  WEFT_HOST_DEVICE static A Of(A x) { return x * x; }
  WEFT_HOST_DEVICE static double Gradient(double x, double, double dy, double) {
    return 2 * x * dy;
  }
};

template <typename A>
struct Norm : SumOfSquaresOf<A> {
  WEFT_HOST_DEVICE static A End(A sum, double) {
    return static_cast<A>(std::sqrt(static_cast<double>(sum)));
  }
  WEFT_HOST_DEVICE static double Gradient(double x, double y, double dy, double) {
    return y == 0 ? 0 : dy * x / y;
  }
};

// (Σ |x|^p)^(1/p); the largest, smallest |x| for p = ±∞; the number of nonzero elements for p = 0.
struct PNorm {
  double p;
  explicit PNorm(double p) : p(p) {}

  double Start() const { return p == -HUGE_VAL ? HUGE_VAL : 0; }
  WEFT_HOST_DEVICE double Of(double x) const {
    const double a = std::fabs(x);
    if (std::isinf(p)) return a;
    return p == 0 ? (a != 0) : std::pow(a, p);
  }
  WEFT_HOST_DEVICE double Join(double a, double b) const {
    if (!std::isinf(p)) return a + b;
    return (p > 0) == (a < b) ? b : a;
  }
  WEFT_HOST_DEVICE double End(double sum) const {
    return p != 0 && std::isfinite(p) ? std::pow(sum, 1 / p) : sum;
  }
  WEFT_HOST_DEVICE double Gradient(double x, double y, double dy) const {
    const double a = std::fabs(x), sign = x > 0 ? 1 : x < 0 ? -1 : 0;
    double slope = 0;
    if (std::isinf(p)) {
      slope = a == y ? 1 : 0;
    } else if (p != 0 && y != 0 && a != 0) {
      slope = std::pow(a / y, p - 1);
    }
    return dy * sign * slope;
  }
};

// Of nonzero elements the product, of the others the number: so that the product of all but one
// element needs no division by 0.
struct Factors {
  double product, zeros;

  WEFT_HOST_DEVICE static Factors Of(double x) { return x == 0 ? Factors{1, 1} : Factors{x, 0}; }
  WEFT_HOST_DEVICE static Factors Join(const Factors& a, const Factors& b) {
    return {a.product * b.product, a.zeros + b.zeros};
  }
  // The product of the other elements.
  WEFT_HOST_DEVICE double Without(double x) const {
    if (x == 0) return zeros > 1 ? 0 : product;
    return zeros > 0 ? 0 : product / x;
  }
};

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_REDUCTION_H_
