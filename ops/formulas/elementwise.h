// Arithmetic on two operands and its derivatives, elementwise, for all devices.
//
// operator() is the function. Dx and Dy are the elements of X@GRAD and Y@GRAD, from those of these
// inputs of the gradient op: (dout), (x, y, dout) or (x, y, out, dout). XGrad and YGrad call them.
// For integers, WhyInvalid says which Y has no result; they exist on CPUs alone.
#ifndef WEFT_OPS_FORMULAS_ELEMENTWISE_H_
#define WEFT_OPS_FORMULAS_ELEMENTWISE_H_

#include <cmath>
#include <type_traits>

#include "ops/host_device.h"
#include "ops/kernel_util.h"

namespace weft::formulas {

// Defined for all integers.
template <typename T>
struct Total {
  static const char* WhyInvalid(T) { return nullptr; }
};

template <typename T>
struct Add : Total<T> {
  WEFT_HOST_DEVICE T operator()(T x, T y) const {
    return static_cast<T>(Wrapping(x) + Wrapping(y));
  }
  WEFT_HOST_DEVICE static T Dx(T dout) { return dout; }
  WEFT_HOST_DEVICE static T Dy(T dout) { return dout; }
};

template <typename T>
struct Sub : Total<T> {
  WEFT_HOST_DEVICE T operator()(T x, T y) const {
    return static_cast<T>(Wrapping(x) - Wrapping(y));
  }
  WEFT_HOST_DEVICE static T Dx(T dout) { return dout; }
  WEFT_HOST_DEVICE static T Dy(T dout) { return -dout; }
};

template <typename T>
struct Mul : Total<T> {
  WEFT_HOST_DEVICE T operator()(T x, T y) const {
    return static_cast<T>(Wrapping(x) * Wrapping(y));
  }
  WEFT_HOST_DEVICE static T Dx(T, T y, T dout) { return dout * y; }
  WEFT_HOST_DEVICE static T Dy(T x, T, T dout) { return dout * x; }
};

// Integer division truncates towards zero.
template <typename T>
struct Div {
  static const char* WhyInvalid(T y) { return y == 0 ? "division by zero" : nullptr; }
  WEFT_HOST_DEVICE T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      if (y == -1) return static_cast<T>(0 - Wrapping(x));  // the lowest number has no negation
    }
    return x / y;
  }
  WEFT_HOST_DEVICE static T Dx(T, T y, T dout) { return dout / y; }
  WEFT_HOST_DEVICE static T Dy(T, T y, T out, T dout) { return -dout * out / y; }
};

// The remainder of floor division: it has the sign of Y.
template <typename T>
struct Mod {
  static const char* WhyInvalid(T y) { return Div<T>::WhyInvalid(y); }
  WEFT_HOST_DEVICE T operator()(T x, T y) const {
    T remainder;
    if constexpr (std::is_integral_v<T>) {
      if (y == -1) return 0;  // the quotient of the lowest number overflows
      remainder = x % y;
    } else {
      remainder = std::fmod(x, y);
    }
    return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
  }
  WEFT_HOST_DEVICE static T Dx(T, T, T dout) { return dout; }
  WEFT_HOST_DEVICE static T Dy(T x, T y, T dout) { return -dout * std::floor(x / y); }
};

// X or Y, and NaN if one of them is; then neither has a gradient. That of equal ones goes to Y.
template <typename T>
struct Max : Total<T> {
  WEFT_HOST_DEVICE T operator()(T x, T y) const { return x > y || x != x ? x : y; }
  WEFT_HOST_DEVICE static T Dx(T x, T y, T dout) { return x > y ? dout : T(0); }
  WEFT_HOST_DEVICE static T Dy(T x, T y, T dout) { return x <= y ? dout : T(0); }
};

template <typename T>
struct Min : Total<T> {
  WEFT_HOST_DEVICE T operator()(T x, T y) const { return x < y || x != x ? x : y; }
  WEFT_HOST_DEVICE static T Dx(T x, T y, T dout) { return x < y ? dout : T(0); }
  WEFT_HOST_DEVICE static T Dy(T x, T y, T dout) { return x >= y ? dout : T(0); }
};

// X if IsX, else Y; the gradient goes to the chosen one.
template <typename T, typename IsX>
struct Choice : Total<T> {
  WEFT_HOST_DEVICE T operator()(T x, T y) const { return IsX::Test(x, y) ? x : y; }
  WEFT_HOST_DEVICE static T Dx(T x, T y, T dout) { return IsX::Test(x, y) ? dout : T(0); }
  WEFT_HOST_DEVICE static T Dy(T x, T y, T dout) { return IsX::Test(x, y) ? T(0) : dout; }
};

// These prefer X if Y is NaN.
template <typename T>
struct IsNotLess {
  WEFT_HOST_DEVICE static bool Test(T x, T y) { return x >= y || y != y; }
};
template <typename T>
struct IsNotGreater {
  WEFT_HOST_DEVICE static bool Test(T x, T y) { return x <= y || y != y; }
};
template <typename T>
using FMax = Choice<T, IsNotLess<T>>;
template <typename T>
using FMin = Choice<T, IsNotGreater<T>>;

template <typename T>
struct Pow {
  static const char* WhyInvalid(T y) { return y < 0 ? "negative power of an integer" : nullptr; }
  WEFT_HOST_DEVICE T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      auto power = Wrapping(T(1)), square = Wrapping(x);
      for (auto rest = Wrapping(y); rest != 0; rest >>= 1) {
        if (rest & 1) power *= square;
        square *= square;
      }
      return static_cast<T>(power);
    } else {
      return std::pow(x, y);
    }
  }
  WEFT_HOST_DEVICE static T Dx(T x, T y, T dout) { return dout * y * std::pow(x, y - 1); }
  WEFT_HOST_DEVICE static T Dy(T x, T y, T dout) { return dout * std::log(x) * std::pow(x, y); }
};

// 0 for a negative X, 1 for a positive one, and Y for 0; 0 for NaN.
template <typename T>
struct Heaviside : Total<T> {
  WEFT_HOST_DEVICE T operator()(T x, T y) const { return x == 0 ? y : x > 0 ? T(1) : T(0); }
  WEFT_HOST_DEVICE static T Dx(T, T, T) { return 0; }
  WEFT_HOST_DEVICE static T Dy(T x, T, T dout) { return x == 0 ? dout : T(0); }
};

// Rounds down.
template <typename T>
struct FloorDiv {
  static const char* WhyInvalid(T y) { return Div<T>::WhyInvalid(y); }
  WEFT_HOST_DEVICE T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      const T quotient = Div<T>()(x, y);
      return y != -1 && x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
    } else {
      return std::floor(x / y);
    }
  }
};

// scale X + bias. Integers wrap around.
template <typename T>
struct ScaleThenAdd {
  T scale, bias;
  WEFT_HOST_DEVICE T operator()(T x) const {
    return static_cast<T>(Wrapping(scale) * Wrapping(x) + Wrapping(bias));
  }
};

// scale (X + bias).
template <typename T>
struct AddThenScale {
  T scale, bias;
  WEFT_HOST_DEVICE T operator()(T x) const {
    return static_cast<T>(Wrapping(scale) * (Wrapping(x) + Wrapping(bias)));
  }
};

// --- Calls of Dx and Dy --------------------------------------------------------------------------

// Whether a derivative reads Out.
template <typename Op, typename T>
constexpr bool kGradReadsOut = std::is_invocable_v<decltype(&Op::Dx), T, T, T, T> ||
                               std::is_invocable_v<decltype(&Op::Dy), T, T, T, T>;

// `derivative` is Dx or Dy. It gets what it reads.
template <typename T>
WEFT_HOST_DEVICE T Apply(T (*derivative)(T), T, T, T, T dout) {
  return derivative(dout);
}
template <typename T>
WEFT_HOST_DEVICE T Apply(T (*derivative)(T, T, T), T x, T y, T, T dout) {
  return derivative(x, y, dout);
}
template <typename T>
WEFT_HOST_DEVICE T Apply(T (*derivative)(T, T, T, T), T x, T y, T out, T dout) {
  return derivative(x, y, out, dout);
}

template <typename Op>
struct XGrad {
  template <typename T>
  WEFT_HOST_DEVICE T operator()(T x, T y, T out, T dout) const {
    return Apply(Op::Dx, x, y, out, dout);
  }
};
template <typename Op>
struct YGrad {
  template <typename T>
  WEFT_HOST_DEVICE T operator()(T x, T y, T out, T dout) const {
    return Apply(Op::Dy, x, y, out, dout);
  }
};

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_ELEMENTWISE_H_
