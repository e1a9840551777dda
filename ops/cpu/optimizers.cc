// Updates of a parameter p by its gradient g without bias correction.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/cpu/families.h"
#include "ops/cpu/update.h"

namespace weft {
namespace {

// p -= lr g.
absl::StatusOr<Kernel> Sgd(const KernelSpec& spec, GradKind kind) {
  return MakeUpdate(spec, kind, {}, [](auto& u) {
    using T = TypeOf<decltype(u)>;
    u.ForEach([lr = u.lr()](T& p, T g, int64_t) { p -= lr * g; });
  });
}

size_t NumParams(const KernelSpec& spec) {
  return spec.Input("Param") < 0 ? 0 : spec.inputs.at("Param").count;
}

// --- momentum ------------------------------------------------------------------------------------

// g = rescale_grad Grad + l2_decay p; v = mu v + g; p -= lr v, or lr (g + mu v) with Nesterov
// momentum. l2_decay has one number per parameter.
absl::StatusOr<Kernel> MakeMomentum(const KernelSpec& spec, GradKind kind, double rescale_grad,
                                    const std::vector<double>& l2_decay) {
  const double mu_attr = spec.attrs.Float("mu");
  const bool use_nesterov = spec.attrs.Bool("use_nesterov");
  return MakeUpdate(spec, kind, {{"Velocity"}}, [=](auto& u) {
    using T = TypeOf<decltype(u)>;
    const T lr = u.lr(), mu = static_cast<T>(mu_attr), rescale = static_cast<T>(rescale_grad);
    const T decay = static_cast<T>(l2_decay[u.index()]);
    T* v = u.state(0);
    u.ForEach([=](T& p, T grad, int64_t i) {
      const T g = rescale * grad + decay * p;
      v[i] = mu * v[i] + g;
      p -= lr * (use_nesterov ? g + mu * v[i] : v[i]);
    });
  });
}

// The factor of L2 regularization: 0 without it.
absl::StatusOr<double> L2Decay(const std::string& method, double coefficient) {
  if (method.empty()) return 0;
  if (method == "l2_decay") return coefficient;
  return absl::UnimplementedError(
      absl::StrCat("attribute regularization_method: no kernel for '", method, "'"));
}

// Paddle's CPU kernel for tensors ignores rescale_grad, and that for rows loses some of them.
absl::StatusOr<Kernel> Momentum(const KernelSpec& spec, GradKind kind) {
  WEFT_ASSIGN_OR_RETURN(const double l2_decay, L2Decay(spec.attrs.String("regularization_method"),
                                                       spec.attrs.Float("regularization_coeff")));
  double rescale_grad = spec.attrs.Float("rescale_grad");
  if (spec.paddle_cpu_quirks) {
    if (kind == GradKind::kDense) rescale_grad = 1;
    if (kind == GradKind::kRowsAmongAll) kind = GradKind::kSearchedRows;
  }
  return MakeMomentum(spec, kind, rescale_grad, std::vector<double>(NumParams(spec), l2_decay));
}

// Paddle's CPU kernel also ignores rescale_grad.
absl::StatusOr<Kernel> MergedMomentum(const KernelSpec& spec) {
  const std::vector<std::string>& methods = spec.attrs.Strings("regularization_method");
  const std::vector<double> coefficients = spec.attrs.Floats("regularization_coeff");
  const size_t count = NumParams(spec);
  std::vector<double> l2_decays(count, 0);
  if (!methods.empty()) {
    if (methods.size() != count || coefficients.size() != count) {
      return absl::InvalidArgumentError(
          absl::StrCat("attributes regularization_method and regularization_coeff: expected one "
                       "for each of ",
                       count, " parameters, found ", methods.size(), " and ", coefficients.size()));
    }
    for (size_t i = 0; i < count; ++i) {
      WEFT_ASSIGN_OR_RETURN(l2_decays[i], L2Decay(methods[i], coefficients[i]));
    }
  }
  const double rescale_grad = spec.paddle_cpu_quirks ? 1 : spec.attrs.Float("rescale_grad");
  return MakeMomentum(spec, GradKind::kDense, rescale_grad, l2_decays);
}

// g = rescale_grad Grad; r = lr lars_coeff ‖p‖ / (‖g‖ + decay ‖p‖ + epsilon), or lr if a norm is 0;
// v = mu v + r (g + decay p); p -= v. Paddle's CPU kernel also uses lr if decay is 0.
absl::StatusOr<Kernel> LarsMomentum(const KernelSpec& spec, GradKind kind) {
  const double mu_attr = spec.attrs.Float("mu"), coeff = spec.attrs.Float("lars_coeff");
  const double epsilon = spec.attrs.Float("epsilon");
  const double rescale_grad = spec.attrs.Float("rescale_grad");
  const bool needs_decay = spec.paddle_cpu_quirks;
  const std::vector<double> decays = spec.attrs.Floats("lars_weight_decay");
  const size_t count = NumParams(spec);
  if (decays.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute lars_weight_decay: expected one number for each of ", count,
                     " parameters, found ", decays.size()));
  }
  return MakeUpdate(spec, kind, {{"Velocity"}}, [=](auto& u) {
    using T = TypeOf<decltype(u)>;
    const double decay = decays[u.index()];
    double p_squares = 0, g_squares = 0;
    u.ForEachRun([&](T* p, const T* grad, int64_t begin, int64_t count, bool) {
      const T* const of_run = p + begin;
      p_squares += SumOf<T>(count, [=](int64_t k) { return double{of_run[k]} * of_run[k]; });
      g_squares += SumOf<T>(count, [=](int64_t k) {
        const double g = rescale_grad * grad[k];
        return g * g;
      });
    });
    const double p_norm = std::sqrt(p_squares), g_norm = std::sqrt(g_squares);
    double rate = u.lr();
    if (p_norm > 0 && g_norm > 0 && (decay > 0 || !needs_decay)) {
      rate *= coeff * p_norm / (g_norm + decay * p_norm + epsilon);
    }
    const T mu = static_cast<T>(mu_attr), r = static_cast<T>(rate);
    T* v = u.state(0);
    u.ForEach([=](T& p, T grad, int64_t i) {
      const T g = static_cast<T>(rescale_grad) * grad + static_cast<T>(decay) * p;
      v[i] = mu * v[i] + r * g;
      p -= v[i];
    });
  });
}

// --- Steps by the size of the gradients so far ---------------------------------------------------

// m += g²; p -= lr g / (√m + epsilon).
absl::StatusOr<Kernel> Adagrad(const KernelSpec& spec, GradKind kind) {
  return MakeUpdate(spec, kind, {{"Moment"}}, [epsilon = spec.attrs.Float("epsilon")](auto& u) {
    using T = TypeOf<decltype(u)>;
    T* m = u.state(0);
    u.ForEach([=, lr = u.lr()](T& p, T g, int64_t i) {
      m[i] += g * g;
      p -= lr * g / (std::sqrt(m[i]) + static_cast<T>(epsilon));
    });
  });
}

// m = decay m + (1 - decay) g²; p -= lr g / (√m + epsilon).
absl::StatusOr<Kernel> DecayedAdagrad(const KernelSpec& spec, GradKind kind) {
  const double decay_attr = spec.attrs.Float("decay"), epsilon = spec.attrs.Float("epsilon");
  return MakeUpdate(spec, kind, {{"Moment"}}, [=](auto& u) {
    using T = TypeOf<decltype(u)>;
    const T decay = static_cast<T>(decay_attr);
    T* m = u.state(0);
    u.ForEach([=, lr = u.lr()](T& p, T g, int64_t i) {
      m[i] = decay * m[i] + (1 - decay) * g * g;
      p -= lr * g / (std::sqrt(m[i]) + static_cast<T>(epsilon));
    });
  });
}

// s = decay s + (1 - decay) g²; m = momentum m + lr g / √(s + epsilon); p -= m.
// Centered: a = decay a + (1 - decay) g, and s - a² instead of s under the root.
absl::StatusOr<Kernel> Rmsprop(const KernelSpec& spec, GradKind kind) {
  const bool centered = spec.attrs.Bool("centered");
  const double decay_attr = spec.attrs.Float("decay"), epsilon_attr = spec.attrs.Float("epsilon");
  const double momentum_attr = spec.attrs.Float("momentum");
  if (centered && spec.Input("MeanGrad") < 0) {
    return absl::InvalidArgumentError("input MeanGrad: missing");
  }
  return MakeUpdate(spec, kind, {{"MeanSquare", "Moment", "MeanGrad"}}, [=](auto& u) {
    using T = TypeOf<decltype(u)>;
    const T decay = static_cast<T>(decay_attr), momentum = static_cast<T>(momentum_attr);
    const T epsilon = static_cast<T>(epsilon_attr);
    T *s = u.state(0), *m = u.state(1), *a = u.state(2);
    u.ForEach([=, lr = u.lr()](T& p, T g, int64_t i) {
      s[i] = decay * s[i] + (1 - decay) * g * g;
      T variance = s[i];
      if (centered) {
        a[i] = decay * a[i] + (1 - decay) * g;
        variance -= a[i] * a[i];
      }
      m[i] = momentum * m[i] + lr * g / std::sqrt(variance + epsilon);
      p -= m[i];
    });
  });
}

// s = rho s + (1 - rho) g²; d = g √((u + epsilon) / (s + epsilon)); u = rho u + (1 - rho) d²;
// p -= lr d.
absl::StatusOr<Kernel> Adadelta(const KernelSpec& spec, GradKind kind) {
  const double rho_attr = spec.attrs.Float("rho"), epsilon_attr = spec.attrs.Float("epsilon");
  return MakeUpdate(spec, kind, {{"AvgSquaredGrad", "AvgSquaredUpdate"}}, [=](auto& u) {
    using T = TypeOf<decltype(u)>;
    const T rho = static_cast<T>(rho_attr), epsilon = static_cast<T>(epsilon_attr);
    T *squares = u.state(0), *updates = u.state(1);
    u.ForEach([=, lr = u.lr()](T& p, T g, int64_t i) {
      squares[i] = rho * squares[i] + (1 - rho) * g * g;
      const T d = g * std::sqrt((updates[i] + epsilon) / (squares[i] + epsilon));
      updates[i] = rho * updates[i] + (1 - rho) * d * d;
      p -= lr * d;
    });
  });
}

// With r(x) = x^-lr_power: n' = n + g²; z += g - p (r(n') - r(n)) / lr; n = n'; p = (l1 sign(z) -
// z) / (r(n) / lr + 2 l2) if |z| > l1, else 0.
absl::StatusOr<Kernel> Ftrl(const KernelSpec& spec, GradKind kind) {
  const double l1_attr = spec.attrs.Float("l1"), l2_attr = spec.attrs.Float("l2");
  const double power = -spec.attrs.Float("lr_power");
  return MakeUpdate(spec, kind, {{"SquaredAccumulator", "LinearAccumulator"}}, [=](auto& u) {
    using T = TypeOf<decltype(u)>;
    const T l1 = static_cast<T>(l1_attr), l2 = static_cast<T>(l2_attr);
    const auto root = [power](T x) {
      return power == 0.5 ? std::sqrt(x) : std::pow(x, static_cast<T>(power));
    };
    T *n = u.state(0), *z = u.state(1);
    u.ForEach([=, lr = u.lr()](T& p, T g, int64_t i) {
      const T new_n = n[i] + g * g;
      z[i] += g - (root(new_n) - root(n[i])) / lr * p;
      n[i] = new_n;
      const T target = (z[i] > 0 ? l1 : -l1) - z[i];
      p = std::fabs(z[i]) > l1 ? target / (root(new_n) / lr + 2 * l2) : T(0);
    });
  });
}

}  // namespace

void AddOptimizerKernels(KernelTable* table) {
  AddUpdate(table, "adadelta", Adadelta);
  AddUpdate(table, "adagrad", Adagrad, GradKind::kRows);
  AddUpdate(table, "decayed_adagrad", DecayedAdagrad);
  AddUpdate(table, "ftrl", Ftrl, GradKind::kRows);
  AddUpdate(table, "lars_momentum", LarsMomentum);
  AddUpdate(table, "momentum", Momentum, GradKind::kRowsAmongAll);
  AddUpdate(table, "rmsprop", Rmsprop, GradKind::kRowsAmongAll);
  AddUpdate(table, "sgd", Sgd, GradKind::kRows);
  table->Add("merged_momentum", MergedMomentum);
}

}  // namespace weft
