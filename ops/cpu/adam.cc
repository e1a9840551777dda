// Adam and its variants: updates by bias-corrected means of gradients and their squares, by the
// formulas of ops/formulas/update.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/algorithm/container.h"
#include "ops/cpu/families.h"
#include "ops/cpu/update.h"
#include "ops/formulas/update.h"

namespace weft {
namespace {

// Advances the powers of beta by one step, unless another op does.
class Powers {
 public:
  explicit Powers(const OpAttrs& attrs)
      : beta1_(attrs.Float("beta1")),
        beta2_(attrs.Float("beta2")),
        keeps_(attrs.Has("use_global_beta_pow") && attrs.Bool("use_global_beta_pow")) {}

  template <typename Update>
  void Advance(Update& u) const {
    using T = TypeOf<Update>;
    if (keeps_) return;
    u.SetScalar(0, static_cast<T>(u.scalar(0)) * static_cast<T>(beta1_));
    u.SetScalar(1, static_cast<T>(u.scalar(1)) * static_cast<T>(beta2_));
  }

 private:
  double beta1_, beta2_;
  bool keeps_;
};

const UpdateSlots& AdamSlots() {
  static const auto* const slots =
      new UpdateSlots{{"Moment1", "Moment2"}, {"Beta1Pow", "Beta2Pow"}};
  return *slots;
}

const UpdateSlots& AmsgradSlots() {
  static const auto* const slots =
      new UpdateSlots{{"Moment1", "Moment2", "Moment2Max"}, {"Beta1Pow", "Beta2Pow"}};
  return *slots;
}

absl::StatusOr<Kernel> MakeAdam(const KernelSpec& spec, GradKind kind, const formulas::Adam& adam) {
  // Paddle's CPU kernel for rows uses the powers of the next step, does nothing if there are no
  // rows, and does not correct the epsilon of rows without a gradient.
  const bool as_paddle = spec.paddle_cpu_quirks && kind != GradKind::kDense;
  // With lazy_mode, rows without a gradient keep their values, including moments.
  if (kind == GradKind::kRows && !spec.attrs.Bool("lazy_mode")) kind = GradKind::kRowsAmongAll;
  if (adam.use_nesterov && adam.amsgrad) {
    return absl::UnimplementedError("attribute use_nesterov: no kernel for true with amsgrad");
  }
  const UpdateSlots& slots = adam.amsgrad ? AmsgradSlots() : AdamSlots();
  return MakeAppliedUpdate(spec, kind, slots, [=, powers = Powers(spec.attrs)](auto& u) {
    using T = TypeOf<decltype(u)>;
    if (as_paddle && u.grad().is_empty()) return;
    T b1 = static_cast<T>(u.scalar(0)), b2 = static_cast<T>(u.scalar(1));
    if (as_paddle) {
      b1 *= static_cast<T>(adam.beta1);
      b2 *= static_cast<T>(adam.beta2);
    }
    const formulas::Adam::Step<T> step = adam.At(u.lr(), b1, b2);
    T *m1 = u.state(0), *m2 = u.state(1);
    T* const m2_max = adam.amsgrad ? u.state(2) : nullptr;
    u.ApplyToRuns([=](T* p, const T* g, int64_t begin, int64_t count, bool has_grad) {
      formulas::Adam::Step<T> f = step;
      if (as_paddle && !has_grad) f.epsilon = static_cast<T>(adam.epsilon);
      if (m2_max != nullptr) {
        return ForEach<T>(count, [=](int64_t k) {
          const int64_t i = begin + k;
          f(p[k], g[k], m1[i], m2[i], m2_max[i]);
        });
      }
      if (adam.use_nesterov) {
        return ForEach<T>(count, [=](int64_t k) {
          const int64_t i = begin + k;
          f.Ahead(p[k], g[k], m1[i], m2[i]);
        });
      }
      ForEach<T>(count, [=](int64_t k) {
        const int64_t i = begin + k;
        f(p[k], g[k], m1[i], m2[i]);
      });
    });
    powers.Advance(u);
  });
}

absl::StatusOr<Kernel> Adam(const KernelSpec& spec, GradKind kind) {
  return MakeAdam(spec, kind, formulas::Adam(spec.attrs));
}

// Paddle's CPU kernel uses lr_ratio to scale the parameter, and then ignores it.
absl::StatusOr<Kernel> AdamW(const KernelSpec& spec, GradKind kind) {
  formulas::AdamW adam(spec.attrs);
  if (spec.paddle_cpu_quirks) adam.update_lr_ratio = 1;
  return MakeAdam(spec, kind, adam);
}

// r = m1 / (1 - b1) / (√(m2 / (1 - b2)) + epsilon) + weight_decay p; p -= lr ‖p‖ / ‖r‖ r. The ratio
// is 1 if one of the norms is 0, or if the update does not adapt. Before Paddle 2, b1 and b2 are 0.
absl::StatusOr<Kernel> Lamb(const KernelSpec& spec, GradKind kind) {
  const double weight_decay = spec.attrs.Float("weight_decay");
  const bool adapts =
      weight_decay > 0 || spec.attrs.Bool("always_adapt") || !spec.attrs.Does("adapts by decay");
  const double beta1 = spec.attrs.Float("beta1"), beta2 = spec.attrs.Float("beta2");
  const double epsilon_attr = spec.attrs.Float("epsilon");
  const bool corrects = spec.attrs.Does("corrects moments");
  static const auto* const kWithoutPowers =
      new UpdateSlots{{"Moment1", "Moment2"}, {}, {"Beta1Pow", "Beta2Pow"}};
  const UpdateSlots& slots = corrects ? AdamSlots() : *kWithoutPowers;
  return MakeUpdate(spec, kind, slots, [=, powers = Powers(spec.attrs)](auto& u) {
    using T = TypeOf<decltype(u)>;
    const formulas::Moments<T> moments{static_cast<T>(beta1), static_cast<T>(beta2)};
    T *m1 = u.state(0), *m2 = u.state(1);
    // Products, as divisions would take longer than memory.
    const T correction1 = corrects ? 1 / (1 - static_cast<T>(u.scalar(0))) : 1;
    const T correction2 = corrects ? 1 / (1 - static_cast<T>(u.scalar(1))) : 1;
    const T epsilon = static_cast<T>(epsilon_attr), decay = static_cast<T>(weight_decay);
    const auto direction = [=](T p, int64_t i) {
      return correction1 * m1[i] / (std::sqrt(correction2 * m2[i]) + epsilon) + decay * p;
    };
    // By block, so that sums do not depend on the number of threads. Sums of kSquares squares in
    // type T lose little, and conversions would take as long as the square roots. What such sums
    // lose to underflow is less than 1e-7 of kLeastSum.
    constexpr int64_t kSquares = 1024;
    constexpr double kLeastSum = 1e-28;
    std::vector<double> p_sums(u.grad().NumBlocks()), r_sums(p_sums.size());
    const T* const all = u.param();
    u.grad().template ForEachNumberedBlock<T>(
        [&](int64_t index, int64_t begin, int64_t count, const T* g) {
          for (int64_t first = 0; first < count; first += kSquares) {
            // In one loop, in which the processor computes while memory delivers.
            const int64_t n = std::min(kSquares, count - first);
            std::array<double, 2> sums = SumsOf<T, 2, T>(n, [=](int64_t k) {
              const int64_t i = begin + first + k;
              moments.Advance(g[first + k], m1[i], m2[i]);
              const T p = all[i], r = direction(p, i);
              return std::array<T, 2>{p * p, r * r};
            });
            const auto fits = [](double sum) { return sum >= kLeastSum && std::isfinite(sum); };
            if (!absl::c_all_of(sums, fits)) {
              sums = SumsOf<T, 2>(n, [=](int64_t k) {
                const int64_t i = begin + first + k;
                const double p = all[i], r = direction(all[i], i);
                return std::array<double, 2>{p * p, r * r};
              });
            }
            p_sums[index] += sums[0];
            r_sums[index] += sums[1];
          }
        });
    const double p_squares = absl::c_accumulate(p_sums, 0.0);
    const double r_squares = absl::c_accumulate(r_sums, 0.0);
    const bool scales = adapts && p_squares > 0 && r_squares > 0;
    const double ratio = scales ? std::sqrt(p_squares) / std::sqrt(r_squares) : 1;
    const T lr = static_cast<T>(u.lr() * ratio);
    u.ApplyToAll([=](T& p, int64_t i) { p -= lr * direction(p, i); });
    if (corrects) powers.Advance(u);
  });
}

absl::StatusOr<Kernel> Adamax(const KernelSpec& spec, GradKind kind) {
  const formulas::Adamax f(spec.attrs);
  return MakeUpdate(spec, kind, {{"Moment", "InfNorm"}, {"Beta1Pow"}}, [=](auto& u) {
    using T = TypeOf<decltype(u)>;
    const T lr = f.CorrectedRate(u.lr(), static_cast<T>(u.scalar(0)));
    T *m = u.state(0), *n = u.state(1);
    u.Apply([=](T& p, T g, int64_t i) { f(lr, p, g, m[i], n[i]); });
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
