// Adam and its variants: updates by bias-corrected means of gradients and their squares.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/cpu/families.h"
#include "ops/cpu/update.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

struct AdamAttrs {
  explicit AdamAttrs(const OpAttrs& attrs)
      : beta1(attrs.Float("beta1")),
        beta2(attrs.Float("beta2")),
        epsilon(attrs.Float("epsilon")),
        keeps_powers(attrs.Has("use_global_beta_pow") && attrs.Bool("use_global_beta_pow")) {}

  // Advances the powers of beta by one step, unless another op does.
  template <typename Update>
  void AdvancePowers(Update& u) const {
    using T = TypeOf<Update>;
    if (keeps_powers) return;
    u.SetScalar(0, static_cast<T>(u.scalar(0)) * static_cast<T>(beta1));
    u.SetScalar(1, static_cast<T>(u.scalar(1)) * static_cast<T>(beta2));
  }

  double beta1, beta2, epsilon;
  bool keeps_powers;
};

const UpdateSlots& AdamSlots() {
  static const auto* const slots =
      new UpdateSlots{{"Moment1", "Moment2"}, {"Beta1Pow", "Beta2Pow"}};
  return *slots;
}

// m1 = beta1 m1 + (1 - beta1) g; m2 = beta2 m2 + (1 - beta2) g².
template <typename T>
struct Moments {
  T *m1, *m2;
  T beta1, beta2;

  template <typename Update>
  Moments(const AdamAttrs& attrs, Update& u)
      : m1(u.state(0)),
        m2(u.state(1)),
        beta1(static_cast<T>(attrs.beta1)),
        beta2(static_cast<T>(attrs.beta2)) {}

  void Advance(int64_t i, T g) const {
    m1[i] = beta1 * m1[i] + (1 - beta1) * g;
    m2[i] = beta2 * m2[i] + (1 - beta2) * g * g;
  }
};

// The differences between adam and adamw.
struct AdamOptions {
  double lr_ratio = 1;         // a factor of the learning rate
  double coeff = 0;            // p is first scaled by (1 - lr lr_ratio coeff)
  double update_lr_ratio = 1;  // lr_ratio, in the rest of the formula
};

// p = shrink p - lr' m1 / (√m2 + epsilon √(1 - b2)) with lr' = lr √(1 - b2) / (1 - b1) and the
// powers b1, b2 of beta, which already count this step.
absl::StatusOr<Kernel> MakeAdam(const KernelSpec& spec, GradKind kind, const AdamOptions& options) {
  // Paddle's CPU kernel for rows uses the powers of the next step, does nothing if there are no
  // rows, and does not correct the epsilon of rows without a gradient.
  const bool as_paddle = spec.paddle_cpu_quirks && kind != GradKind::kDense;
  // With lazy_mode, rows without a gradient keep their values, including moments.
  if (kind == GradKind::kRows && !spec.attrs.Bool("lazy_mode")) kind = GradKind::kRowsAmongAll;
  return MakeUpdate(spec, kind, AdamSlots(), [=, attrs = AdamAttrs(spec.attrs)](auto& u) {
    using T = TypeOf<decltype(u)>;
    if (as_paddle && u.grad().is_empty()) return;
    const Moments<T> moments(attrs, u);
    T b1 = static_cast<T>(u.scalar(0)), b2 = static_cast<T>(u.scalar(1));
    if (as_paddle) {
      b1 *= moments.beta1;
      b2 *= moments.beta2;
    }
    const T correction = std::sqrt(1 - b2);
    const T lr = u.lr() * static_cast<T>(options.update_lr_ratio) * correction / (1 - b1);
    const T plain_epsilon = static_cast<T>(attrs.epsilon), epsilon = plain_epsilon * correction;
    const T shrink = static_cast<T>(1 - u.lr() * options.lr_ratio * options.coeff);
    u.ForEachRun([=](T* p, const T* g, int64_t begin, int64_t count, bool has_grad) {
      const T e = as_paddle && !has_grad ? plain_epsilon : epsilon;
      ForEach<T>(count, [=](int64_t k) {
        const int64_t i = begin + k;
        moments.Advance(i, g[k]);
        p[i] = shrink * p[i] - lr * (moments.m1[i] / (std::sqrt(moments.m2[i]) + e));
      });
    });
    attrs.AdvancePowers(u);
  });
}

absl::StatusOr<Kernel> Adam(const KernelSpec& spec, GradKind kind) {
  return MakeAdam(spec, kind, AdamOptions());
}

// Paddle's CPU kernel uses lr_ratio to scale the parameter, and then ignores it.
absl::StatusOr<Kernel> AdamW(const KernelSpec& spec, GradKind kind) {
  AdamOptions options;
  options.lr_ratio = spec.attrs.Float("lr_ratio");
  options.coeff = spec.attrs.Bool("with_decay") ? spec.attrs.Float("coeff") : 0;
  options.update_lr_ratio = spec.paddle_cpu_quirks ? 1 : options.lr_ratio;
  return MakeAdam(spec, kind, options);
}

// r = m1 / (1 - b1) / (√(m2 / (1 - b2)) + epsilon) + weight_decay p; p -= lr ‖p‖ / ‖r‖ r. The ratio
// is 1 if one of the norms is 0, or if the update does not adapt.
absl::StatusOr<Kernel> Lamb(const KernelSpec& spec, GradKind kind) {
  const double weight_decay = spec.attrs.Float("weight_decay");
  const bool adapts = weight_decay > 0 || spec.attrs.Bool("always_adapt");
  return MakeUpdate(spec, kind, AdamSlots(), [=, attrs = AdamAttrs(spec.attrs)](auto& u) {
    using T = TypeOf<decltype(u)>;
    const Moments<T> moments(attrs, u);
    const T correction1 = 1 - static_cast<T>(u.scalar(0));
    const T correction2 = 1 - static_cast<T>(u.scalar(1));
    const T epsilon = static_cast<T>(attrs.epsilon), decay = static_cast<T>(weight_decay);
    const auto direction = [=](T p, int64_t i) {
      return moments.m1[i] / correction1 / (std::sqrt(moments.m2[i] / correction2) + epsilon) +
             decay * p;
    };
    u.ForEach([=](T&, T g, int64_t i) { moments.Advance(i, g); });
    double p_squares = 0, r_squares = 0;
    u.ForEachRun([&](T* p, const T*, int64_t begin, int64_t count, bool) {
      const T* const of_run = p + begin;
      p_squares += SumOf<T>(count, [=](int64_t k) { return double{of_run[k]} * of_run[k]; });
      r_squares += SumOf<T>(count, [=](int64_t k) {
        const double r = direction(of_run[k], begin + k);
        return r * r;
      });
    });
    const bool scales = adapts && p_squares > 0 && r_squares > 0;
    const double ratio = scales ? std::sqrt(p_squares) / std::sqrt(r_squares) : 1;
    const T lr = static_cast<T>(u.lr() * ratio);
    T* p = u.param();
    ForEach<T>(u.size(), [=](int64_t i) { p[i] -= lr * direction(p[i], i); });
    attrs.AdvancePowers(u);
  });
}

// m = beta1 m + (1 - beta1) g; n = max(|g|, beta2 n + epsilon); p -= lr / (1 - b1) m / n. A
// separate op advances the power b1 of beta1.
absl::StatusOr<Kernel> Adamax(const KernelSpec& spec, GradKind kind) {
  const double beta1_attr = spec.attrs.Float("beta1"), beta2_attr = spec.attrs.Float("beta2");
  const double epsilon_attr = spec.attrs.Float("epsilon");
  return MakeUpdate(spec, kind, {{"Moment", "InfNorm"}, {"Beta1Pow"}}, [=](auto& u) {
    using T = TypeOf<decltype(u)>;
    const T beta1 = static_cast<T>(beta1_attr), beta2 = static_cast<T>(beta2_attr);
    const T epsilon = static_cast<T>(epsilon_attr);
    const T lr = u.lr() / (1 - static_cast<T>(u.scalar(0)));
    T *m = u.state(0), *n = u.state(1);
    u.ForEach([=](T& p, T g, int64_t i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      n[i] = std::max(std::fabs(g), beta2 * n[i] + epsilon);
      p -= lr * (m[i] / n[i]);
    });
  });
}

}  // namespace

void AddAdamKernels(KernelTable* table) {
  AddUpdate(table, "adam", Adam, GradKind::kRows);
  AddUpdate(table, "adamax", Adamax);
  AddUpdate(table, "adamw", AdamW, GradKind::kRows);
  AddUpdate(table, "lamb", Lamb, GradKind::kRowsAmongAll);
  AddUpdate(table, "merged_adam", Adam);
}

}  // namespace weft
