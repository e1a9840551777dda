// Updates of an element p of a parameter by its gradient g that Paddle has since version 3, for all
// devices: as in ops/formulas/update.h, with what is the same for all elements in At().
#ifndef WEFT_OPS_FORMULAS_PADDLE3_UPDATES_H_
#define WEFT_OPS_FORMULAS_PADDLE3_UPDATES_H_

#include <cmath>

#include "ops/formulas/update.h"
#include "ops/host_device.h"
#include "ops/schema/op_attrs.h"

namespace weft::formulas {

// d += g - y; y = g; p -= lr d / n: d is the sum of the last gradients of n parts of the data, and
// y that of the part of this step. Schmidt, Le Roux and Bach, "Minimizing Finite Sums with the
// Stochastic Average Gradient" (2013).
template <typename T>
struct AsgdStep {
  T lr, n;
  WEFT_HOST_DEVICE void operator()(T& p, T g, T& d, T& y) const {
    d = d - y + g;
    y = g;
    p -= lr / n * d;
  }
};

// In step t, with mu(t) = beta1 (1 - 0.96^(momentum_decay t) / 2), the product M of mu(1) to mu(t)
// and the power b2 of beta2: p -= lr (mu(t+1) m1 / (1 - M mu(t+1)) + (1 - mu(t)) g / (1 - M)) /
// (√(m2 / (1 - b2)) + epsilon). Dozat, "Incorporating Nesterov Momentum into Adam" (2016).
template <typename T>
struct NadamStep {
  Moments<T> moments;
  T of_moment, of_gradient;  // factors
  T correction2, epsilon;
  WEFT_HOST_DEVICE void operator()(T& p, T g, T& m1, T& m2) const {
    moments.Advance(g, m1, m2);
    const T size = std::sqrt(m2 / correction2) + epsilon;
    p -= (of_moment * m1 + of_gradient * g) / size;
  }
};

struct Nadam {
  static constexpr double kDecay = 0.96;
  double beta1, beta2, epsilon, momentum_decay;
  explicit Nadam(const OpAttrs& attrs)
      : beta1(attrs.Float("beta1")),
        beta2(attrs.Float("beta2")),
        epsilon(attrs.Float("epsilon")),
        momentum_decay(attrs.Float("momentum_decay")) {}
  // The factor mu of the step of which `decay_pow` is the power of kDecay.
  WEFT_HOST_DEVICE double Mu(double decay_pow) const {
    return beta1 * (1 - 0.5 * std::pow(decay_pow, momentum_decay));
  }
  // `b2`, `decay_pow`: the powers, which count this step; `product`: M of the steps before.
  template <typename T>
  WEFT_HOST_DEVICE NadamStep<T> At(double lr, double b2, double decay_pow, double product) const {
    const double mu = Mu(decay_pow), next = Mu(decay_pow * kDecay), so_far = product * mu;
    return {{static_cast<T>(beta1), static_cast<T>(beta2)},
            static_cast<T>(lr * next / (1 - so_far * next)),
            static_cast<T>(lr * (1 - mu) / (1 - so_far)),
            static_cast<T>(1 - b2),
            static_cast<T>(epsilon)};
  }
};

// Adam whose step is scaled by r, while the variance of the squares is known (rho(t) > 5), and else
// a step by the mean alone: rho = 2 / (1 - beta2) - 1, rho(t) = rho - 2 t b2 / (1 - b2), r² =
// (rho(t) - 4) (rho(t) - 2) rho / ((rho - 4) (rho - 2) rho(t)), p -= lr r m1 / (1 - b1) / (√m2 +
// epsilon) √(1 - b2). Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond"
// (2020).
template <typename T>
struct RadamStep {
  Moments<T> moments;
  T rate, epsilon;
  bool adapts;
  WEFT_HOST_DEVICE void operator()(T& p, T g, T& m1, T& m2) const {
    moments.Advance(g, m1, m2);
    p -= adapts ? rate * m1 / (std::sqrt(m2) + epsilon) : rate * m1;
  }
};

struct Radam {
  double beta1, beta2, epsilon;
  explicit Radam(const OpAttrs& attrs)
      : beta1(attrs.Float("beta1")), beta2(attrs.Float("beta2")), epsilon(attrs.Float("epsilon")) {}
  // t b2 / (1 - b2) of a step, from that of the step before.
  WEFT_HOST_DEVICE double NextRho(double rho, double b2) const {
    return (rho * (beta2 - b2) + b2) / (1 - b2);
  }
  // With the powers of this step, and NextRho.
  template <typename T>
  WEFT_HOST_DEVICE RadamStep<T> At(double lr, double b1, double b2, double next_rho) const {
    const double most = 2 / (1 - beta2) - 1, rho = most - 2 * next_rho;
    RadamStep<T> step{{static_cast<T>(beta1), static_cast<T>(beta2)},
                      static_cast<T>(lr / (1 - b1)),
                      static_cast<T>(epsilon),
                      /*adapts=*/rho > 5};
    if (step.adapts) {
      const double r = std::sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho));
      step.rate = static_cast<T>(lr / (1 - b1) * r * std::sqrt(1 - b2));
    }
    return step;
  }
};

// The rate of an element grows by etas[1] where the sign of the gradient stays, and shrinks by
// etas[0] where it changes, in which step the element stays; p -= rate sign(g). Riedmiller and
// Braun, "A Direct Adaptive Method for Faster Backpropagation Learning" (1993).
template <typename T>
struct RpropStep {
  T shrinks, grows, least, most;
  WEFT_HOST_DEVICE void operator()(T& p, T g, T& prev, T& rate) const {
    const T product = g * prev;
    const T turned = product < 0 ? T(0) : g;
    rate *= product > 0 ? grows : product < 0 ? shrinks : T(1);
    rate = rate < least ? least : most < rate ? most : rate;
    p -= turned > 0 ? rate : turned < 0 ? -rate : T(0);
    prev = turned;
  }
};

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_PADDLE3_UPDATES_H_
