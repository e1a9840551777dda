// Losses of one number per element, and their derivatives, for all devices.
#ifndef WEFT_OPS_FORMULAS_LOSS_H_
#define WEFT_OPS_FORMULAS_LOSS_H_

#include <cmath>

#include "ops/host_device.h"

namespace weft::formulas {

// Out(a, b) and Da(a, b), the derivative by a, of two numbers and perhaps an attribute.
struct LogLoss {
  double epsilon;
  WEFT_HOST_DEVICE double Out(double p, double y) const {
    return -y * std::log(p + epsilon) - (1 - y) * std::log(1 - p + epsilon);
  }
  WEFT_HOST_DEVICE double Da(double p, double y) const {
    return -y / (p + epsilon) + (1 - y) / (1 - p + epsilon);
  }
};

struct BceLoss {
  WEFT_HOST_DEVICE static double Log(double x) {
    const double log = std::log(x);
    return log < -100 ? -100 : log;
  }
  WEFT_HOST_DEVICE double Out(double p, double y) const {
    return -y * Log(p) - (1 - y) * Log(1 - p);
  }
  WEFT_HOST_DEVICE double Da(double p, double y) const {
    const double variance = (1 - p) * p;
    return (p - y) / (variance < 1e-12 ? 1e-12 : variance);
  }
};

struct HingeLoss {
  WEFT_HOST_DEVICE double Out(double x, double y) const {
    const double loss = 1 - x * (2 * y - 1);
    return loss > 0 ? loss : 0;
  }
  WEFT_HOST_DEVICE double Da(double x, double y) const {
    return x * (2 * y - 1) < 1 ? 1 - 2 * y : 0;
  }
};

// Of r = y - x: r²/2, or delta (|r| - delta/2) beyond delta.
struct HuberLoss {
  double delta;
  template <typename T>
  WEFT_HOST_DEVICE T Out(T r) const {
    const T d = static_cast<T>(delta), a = std::fabs(r);
    return a <= d ? r * r / 2 : d * (a - d / 2);
  }
  // By r.
  template <typename T>
  WEFT_HOST_DEVICE T Slope(T r) const {
    const T d = static_cast<T>(delta);
    return r > d ? d : r < -d ? -d : r;
  }
};

// (1 - label) x + w log(1 + exp(-x)), which for w = 1 is -label log p - (1 - label) log(1 - p) with
// p = sigmoid(x).
template <typename T>
struct SigmoidCrossEntropy {
  // log(1 + exp(-x))
  WEFT_HOST_DEVICE static T SoftplusOfNegative(T x) {
    return (x < 0 ? -x : T(0)) + std::log1p(std::exp(-std::fabs(x)));
  }
  WEFT_HOST_DEVICE static T Out(T x, T label, T w) {
    return (x > 0 ? x : T(0)) - x * label + std::log1p(std::exp(-std::fabs(x))) +
           (w == 1 ? T(0) : (w - 1) * SoftplusOfNegative(x));
  }
  WEFT_HOST_DEVICE static T Slope(T x, T label, T w) {
    const T sigmoid = 1 / (1 + std::exp(-x));
    return sigmoid - label + (w == 1 ? T(0) : (w - 1) * (sigmoid - 1));
  }
};

// -log p; an infinite result counts as 1e20.
WEFT_HOST_DEVICE inline double MinusLog(double p) {
  const double loss = -std::log(p);
  return loss > 1e20 ? 1e20 : loss;
}

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_LOSS_H_
