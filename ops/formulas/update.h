// Updates of an element p of a parameter by its gradient g, for all devices. A formula reads its
// attributes in its constructor. operator()(lr, p, g, states...) writes p and the elements of the
// states, which are those of the slots in kStates.
#ifndef WEFT_OPS_FORMULAS_UPDATE_H_
#define WEFT_OPS_FORMULAS_UPDATE_H_

#include <array>
#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/host_device.h"
#include "ops/schema/op_attrs.h"

namespace weft::formulas {

// The input slots of states.
template <size_t n>
using StateSlots = std::array<const char*, n>;

struct Sgd {
  static constexpr StateSlots<0> kStates = {};
  explicit Sgd(const OpAttrs&) {}
  template <typename T>
  WEFT_HOST_DEVICE void operator()(T lr, T& p, T g) const {
    p -= lr * g;
  }
};

// --- momentum ------------------------------------------------------------------------------------

// The factor of L2 regularization: 0 without it.
inline absl::StatusOr<double> L2Decay(const std::string& method, double coefficient) {
  if (method.empty()) return 0;
  if (method == "l2_decay") return coefficient;
  return absl::UnimplementedError(
      absl::StrCat("attribute regularization_method: no kernel for '", method, "'"));
}

// g = rescale_grad Grad + l2_decay p; v = mu v + g; p -= lr v, or lr (g + mu v) with Nesterov
// momentum: Sutskever et al., "On the importance of initialization and momentum in deep learning"
// (2013).
struct Momentum {
  static constexpr StateSlots<1> kStates = {"Velocity"};
  double mu, rescale_grad, l2_decay;
  bool use_nesterov;
  // Without regularization, which ops for one parameter and for several have in different forms.
  explicit Momentum(const OpAttrs& attrs)
      : mu(attrs.Float("mu")),
        rescale_grad(attrs.Float("rescale_grad")),
        l2_decay(0),
        use_nesterov(attrs.Bool("use_nesterov")) {}
  template <typename T>
  WEFT_HOST_DEVICE void operator()(T lr, T& p, T grad, T& v) const {
    const T factor = static_cast<T>(mu);
    const T g = static_cast<T>(rescale_grad) * grad + static_cast<T>(l2_decay) * p;
    v = factor * v + g;
    p -= lr * (use_nesterov ? g + factor * v : v);
  }
};

// --- Steps by the size of the gradients so far ---------------------------------------------------

// m += g²; p -= lr g / (√m + epsilon). Duchi, Hazan and Singer, "Adaptive Subgradient Methods for
// Online Learning and Stochastic Optimization" (2011).
struct Adagrad {
  static constexpr StateSlots<1> kStates = {"Moment"};
  double epsilon;
  explicit Adagrad(const OpAttrs& attrs) : epsilon(attrs.Float("epsilon")) {}
  template <typename T>
  WEFT_HOST_DEVICE void operator()(T lr, T& p, T g, T& m) const {
    m += g * g;
    p -= lr * g / (std::sqrt(m) + static_cast<T>(epsilon));
  }
};

// m = decay m + (1 - decay) g²; p -= lr g / (√m + epsilon).
struct DecayedAdagrad {
  static constexpr StateSlots<1> kStates = {"Moment"};
  double decay, epsilon;
  explicit DecayedAdagrad(const OpAttrs& attrs)
      : decay(attrs.Float("decay")), epsilon(attrs.Float("epsilon")) {}
  template <typename T>
  WEFT_HOST_DEVICE void operator()(T lr, T& p, T g, T& m) const {
    const T kept = static_cast<T>(decay);
    m = kept * m + (1 - kept) * g * g;
    p -= lr * g / (std::sqrt(m) + static_cast<T>(epsilon));
  }
};

// s = decay s + (1 - decay) g²; m = momentum m + lr g / √(s + epsilon); p -= m. Tieleman and
// Hinton, Lecture 6.5 of "Neural Networks for Machine Learning" (2012).
struct Rmsprop {
  static constexpr StateSlots<2> kStates = {"MeanSquare", "Moment"};
  double decay, epsilon, momentum;
  explicit Rmsprop(const OpAttrs& attrs)
      : decay(attrs.Float("decay")),
        epsilon(attrs.Float("epsilon")),
        momentum(attrs.Float("momentum")) {}
  template <typename T>
  WEFT_HOST_DEVICE void operator()(T lr, T& p, T g, T& s, T& m) const {
    const T kept = static_cast<T>(decay);
    s = kept * s + (1 - kept) * g * g;
    Step(lr, p, g, s, m);
  }

 protected:
  template <typename T>
  WEFT_HOST_DEVICE void Step(T lr, T& p, T g, T variance, T& m) const {
    m = static_cast<T>(momentum) * m + lr * g / std::sqrt(variance + static_cast<T>(epsilon));
    p -= m;
  }
};

// Also a = decay a + (1 - decay) g, and s - a² instead of s under the root. Graves, "Generating
// Sequences With Recurrent Neural Networks" (2013).
struct CenteredRmsprop : Rmsprop {
  static constexpr StateSlots<3> kStates = {"MeanSquare", "Moment", "MeanGrad"};
  explicit CenteredRmsprop(const OpAttrs& attrs) : Rmsprop(attrs) {}
  template <typename T>
  WEFT_HOST_DEVICE void operator()(T lr, T& p, T g, T& s, T& m, T& a) const {
    const T kept = static_cast<T>(decay);
    s = kept * s + (1 - kept) * g * g;
    a = kept * a + (1 - kept) * g;
    Step(lr, p, g, s - a * a, m);
  }
};

// s = rho s + (1 - rho) g²; d = g √((u + epsilon) / (s + epsilon)); u = rho u + (1 - rho) d²;
// p -= lr d. Zeiler, "ADADELTA: An Adaptive Learning Rate Method" (2012).
// Paddle's CPU kernel before Paddle 2 computes d again, from the new u, for p.
struct Adadelta {
  static constexpr StateSlots<2> kStates = {"AvgSquaredGrad", "AvgSquaredUpdate"};
  double rho, epsilon;
  bool takes_new_update = false;
  explicit Adadelta(const OpAttrs& attrs)
      : rho(attrs.Float("rho")), epsilon(attrs.Float("epsilon")) {}
  template <typename T>
  WEFT_HOST_DEVICE void operator()(T lr, T& p, T g, T& s, T& u) const {
    const T kept = static_cast<T>(rho), least = static_cast<T>(epsilon);
    s = kept * s + (1 - kept) * g * g;
    const T d = g * std::sqrt((u + least) / (s + least));
    u = kept * u + (1 - kept) * d * d;
    p -= lr * (takes_new_update ? g * std::sqrt((u + least) / (s + least)) : d);
  }
};

// With r(x) = x^-lr_power: n' = n + g²; z += g - p (r(n') - r(n)) / lr; n = n'; p = (l1 sign(z) -
// z) / (r(n) / lr + 2 l2) if |z| > l1, else 0. McMahan et al., "Ad Click Prediction: a View from
// the Trenches" (2013).
struct Ftrl {
  static constexpr StateSlots<2> kStates = {"SquaredAccumulator", "LinearAccumulator"};
  double l1, l2, power;
  explicit Ftrl(const OpAttrs& attrs)
      : l1(attrs.Float("l1")), l2(attrs.Float("l2")), power(-attrs.Float("lr_power")) {}
  template <typename T>
  WEFT_HOST_DEVICE void operator()(T lr, T& p, T g, T& n, T& z) const {
    const T limit = static_cast<T>(l1);
    const T new_n = n + g * g;
    z += g - (Root(new_n) - Root(n)) / lr * p;
    n = new_n;
    const T target = (z > 0 ? limit : -limit) - z;
    p = std::fabs(z) > limit ? target / (Root(new_n) / lr + 2 * static_cast<T>(l2)) : T(0);
  }

 private:
  template <typename T>
  WEFT_HOST_DEVICE T Root(T x) const {
    return power == 0.5 ? std::sqrt(x) : std::pow(x, static_cast<T>(power));
  }
};

// --- Adam and its variants -----------------------------------------------------------------------

// m1 = beta1 m1 + (1 - beta1) g; m2 = beta2 m2 + (1 - beta2) g².
template <typename T>
struct Moments {
  T beta1, beta2;
  WEFT_HOST_DEVICE void Advance(T g, T& m1, T& m2) const {
    m1 = beta1 * m1 + (1 - beta1) * g;
    m2 = beta2 * m2 + (1 - beta2) * g * g;
  }
};

// p = shrink p - lr' m1 / (√m2 + epsilon √(1 - b2)), before Paddle 2 with a plain epsilon, with lr'
// = lr √(1 - b2) / (1 - b1) and the powers b1, b2 of beta, which already count this step. Kingma
// and Ba, "Adam: A Method for Stochastic Optimization" (2014); Loshchilov and Hutter, "Decoupled
// Weight Decay Regularization" (2017).
struct Adam {
  static constexpr char kCorrectsEpsilon[] = "corrects epsilon";
  // In one step.
  template <typename T>
  struct Step {
    Moments<T> moments;
    T lr, epsilon, shrink;
    WEFT_HOST_DEVICE void operator()(T& p, T g, T& m1, T& m2) const {
      moments.Advance(g, m1, m2);
      p = shrink * p - lr * (m1 / (std::sqrt(m2) + epsilon));
    }
    // By the mean beta1 m1 + (1 - beta1) g instead of m1, as Nesterov momentum: MindSpore's
    // LazyAdam.
    WEFT_HOST_DEVICE void Ahead(T& p, T g, T& m1, T& m2) const {
      moments.Advance(g, m1, m2);
      const T ahead = moments.beta1 * m1 + (1 - moments.beta1) * g;
      p = shrink * p - lr * (ahead / (std::sqrt(m2) + epsilon));
    }
    // By the largest m2 so far: Reddi, Kale and Kumar, "On the Convergence of Adam and Beyond"
    // (2018).
    WEFT_HOST_DEVICE void operator()(T& p, T g, T& m1, T& m2, T& m2_max) const {
      moments.Advance(g, m1, m2);
      m2_max = m2_max < m2 ? m2 : m2_max;
      p = shrink * p - lr * (m1 / (std::sqrt(m2_max) + epsilon));
    }
  };

  static constexpr StateSlots<2> kStates = {"Moment1", "Moment2"};
  double beta1, beta2, epsilon;
  double coeff = 0;            // p is first scaled by (1 - lr lr_ratio coeff)
  double lr_ratio = 1;         // a factor of the learning rate
  double update_lr_ratio = 1;  // lr_ratio, in the rest of the formula
  bool amsgrad;                // a third state, Moment2Max, has the largest m2 so far
  bool use_nesterov;           // Step::Ahead
  bool corrects_epsilon;

  explicit Adam(const OpAttrs& attrs)
      : beta1(attrs.Float("beta1")),
        beta2(attrs.Float("beta2")),
        epsilon(attrs.Float("epsilon")),
        amsgrad(attrs.Has("amsgrad") && attrs.Bool("amsgrad")),
        use_nesterov(attrs.Has("use_nesterov") && attrs.Bool("use_nesterov")),
        corrects_epsilon(attrs.Does(kCorrectsEpsilon)) {}
  template <typename T>
  WEFT_HOST_DEVICE Step<T> At(T lr, T b1, T b2) const {
    const T correction = std::sqrt(1 - b2);
    return {{static_cast<T>(beta1), static_cast<T>(beta2)},
            lr * static_cast<T>(update_lr_ratio) * correction / (1 - b1),
            corrects_epsilon ? static_cast<T>(epsilon) * correction : static_cast<T>(epsilon),
            static_cast<T>(1 - lr * lr_ratio * coeff)};
  }
};

struct AdamW : Adam {
  explicit AdamW(const OpAttrs& attrs) : Adam(attrs) {
    coeff = attrs.Bool("with_decay") ? attrs.Float("coeff") : 0;
    lr_ratio = update_lr_ratio = attrs.Float("lr_ratio");
  }
};

// m = beta1 m + (1 - beta1) g; n = max(|g|, beta2 n + epsilon); p -= lr' m / n, with lr' = lr /
// (1 - b1) and the power b1 of beta1, which another op advances. Kingma and Ba, as above.
struct Adamax {
  static constexpr StateSlots<2> kStates = {"Moment", "InfNorm"};
  double beta1, beta2, epsilon;
  explicit Adamax(const OpAttrs& attrs)
      : beta1(attrs.Float("beta1")), beta2(attrs.Float("beta2")), epsilon(attrs.Float("epsilon")) {}
  template <typename T>
  WEFT_HOST_DEVICE T CorrectedRate(T lr, T b1) const {
    return lr / (1 - b1);
  }
  template <typename T>
  WEFT_HOST_DEVICE void operator()(T corrected_lr, T& p, T g, T& m, T& n) const {
    const T kept1 = static_cast<T>(beta1), kept2 = static_cast<T>(beta2);
    m = kept1 * m + (1 - kept1) * g;
    const T size = std::fabs(g), decayed = kept2 * n + static_cast<T>(epsilon);
    n = size < decayed ? decayed : size;
    p -= corrected_lr * (m / n);
  }
};

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_UPDATE_H_
