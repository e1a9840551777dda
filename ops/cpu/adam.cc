// Adam and what follows from it: updates by bias-corrected means of gradients and their squares.
#include <cmath>
#include <cstdint>
#include <string>

#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/optimizer_common.h"
#include "ops/cpu/optimizer_grad.h"

namespace weft {
namespace {

using GradKind = OptimizerGrad::Kind;

// True where the op has a flag to leave everything as it is, and the flag is set.
absl::StatusOr<bool> SkipsUpdate(const Tensor* flag) {
  if (flag == nullptr) return false;
  WEFT_RETURN_IF_ERROR(CheckSize("SkipUpdate", *flag, 1));
  if (flag->dtype() != DType::kBool) {
    return absl::InvalidArgumentError(
        absl::StrCat("input SkipUpdate: expected bool, found ", DTypeName(flag->dtype())));
  }
  return *flag->data<bool>();
}

struct AdamStates {
  OptimizerState moment1, moment2, beta1_pow, beta2_pow;

  static absl::StatusOr<AdamStates> Make(const KernelSpec& spec) {
    AdamStates states;
    WEFT_ASSIGN_OR_RETURN(states.moment1, OptimizerState::Make(spec, "Moment1"));
    WEFT_ASSIGN_OR_RETURN(states.moment2, OptimizerState::Make(spec, "Moment2"));
    WEFT_ASSIGN_OR_RETURN(states.beta1_pow, OptimizerState::Make(spec, "Beta1Pow"));
    WEFT_ASSIGN_OR_RETURN(states.beta2_pow, OptimizerState::Make(spec, "Beta2Pow"));
    return states;
  }

  absl::Status Check(const KernelContext& ctx, const Tensor& param) const {
    WEFT_RETURN_IF_ERROR(moment1.CheckLike(ctx, "Moment1", param));
    WEFT_RETURN_IF_ERROR(moment2.CheckLike(ctx, "Moment2", param));
    WEFT_RETURN_IF_ERROR(CheckDType("Beta1Pow", *ctx.in(beta1_pow.in), param.dtype()));
    WEFT_RETURN_IF_ERROR(CheckSize("Beta1Pow", *ctx.in(beta1_pow.in), 1));
    WEFT_RETURN_IF_ERROR(CheckDType("Beta2Pow", *ctx.in(beta2_pow.in), param.dtype()));
    return CheckSize("Beta2Pow", *ctx.in(beta2_pow.in), 1);
  }
};

// One step of an update: where things are, and its numbers.
struct Step {
  const KernelContext& ctx;
  const OptimizerCommon& common;
  const AdamStates& states;
  const OptimizerGrad& grad;
  double lr = 0, beta1 = 0, beta2 = 0, epsilon = 0;

  int64_t size() const { return ctx.in(common.param.in)->size(); }

  // The powers of beta, which already count this step.
  template <typename T>
  T Beta1Pow() const {
    return *ctx.in(states.beta1_pow.in)->data<T>();
  }
  template <typename T>
  T Beta2Pow() const {
    return *ctx.in(states.beta2_pow.in)->data<T>();
  }
};

// The means of gradients and of their squares, before a step and after it.
template <typename T>
struct Moments {
  T *m1_out, *m2_out;
  const T *m1, *m2;
  T beta1, beta2;

  explicit Moments(const Step& step)
      : m1(step.states.moment1.Open<T>(step.ctx, &m1_out)),
        m2(step.states.moment2.Open<T>(step.ctx, &m2_out)),
        beta1(static_cast<T>(step.beta1)),
        beta2(static_cast<T>(step.beta2)) {}

  // m1 = beta1 m1 + (1 - beta1) g; m2 = beta2 m2 + (1 - beta2) g².
  void Advance(int64_t i, T g) const {
    m1_out[i] = beta1 * m1[i] + (1 - beta1) * g;
    m2_out[i] = beta2 * m2[i] + (1 - beta2) * g * g;
  }
};

// p = shrink p - lr' m1 / (√m2 + epsilon √(1 - b2)) with lr' = lr √(1 - b2) / (1 - b1) and the
// powers b1, b2 of beta.
template <typename T>
void AdamUpdate(const Step& step, double shrink_factor) {
  const T correction = std::sqrt(1 - step.Beta2Pow<T>());
  const T lr = static_cast<T>(step.lr) * correction / (1 - step.Beta1Pow<T>());
  const T epsilon = static_cast<T>(step.epsilon) * correction;
  const T shrink = static_cast<T>(shrink_factor);
  T* p_out;
  const T* p = step.common.param.Open<T>(step.ctx, &p_out);
  const Moments<T> moments(step);
  step.grad.ForEachRun<T>([&](int64_t begin, int64_t count, const T* g) {
    for (int64_t k = 0, i = begin; k < count; ++k, ++i) {
      moments.Advance(i, g[k]);
      p_out[i] =
          shrink * p[i] - lr * (moments.m1_out[i] / (std::sqrt(moments.m2_out[i]) + epsilon));
    }
  });
}

// r = m1 / (1 - b1) / (√(m2 / (1 - b2)) + epsilon) + weight_decay p; p -= lr ‖p‖ / ‖r‖ r. Without
// the ratio where one of the norms is 0, or the update does not adapt.
template <typename T>
void LambUpdate(const Step& step, double weight_decay, bool adapts) {
  const T correction1 = 1 - step.Beta1Pow<T>(), correction2 = 1 - step.Beta2Pow<T>();
  const T epsilon = static_cast<T>(step.epsilon), decay = static_cast<T>(weight_decay);
  T* p_out;
  const T* p = step.common.param.Open<T>(step.ctx, &p_out);
  const Moments<T> moments(step);
  const auto direction = [&](int64_t i) {
    return moments.m1_out[i] / correction1 /
               (std::sqrt(moments.m2_out[i] / correction2) + epsilon) +
           decay * p[i];
  };
  double p_squares = 0, r_squares = 0;
  const T* g = step.ctx.in(step.common.grad)->data<T>();
  for (int64_t i = 0; i < step.size(); ++i) {
    moments.Advance(i, g[i]);
    const double r = direction(i);
    p_squares += static_cast<double>(p[i]) * p[i];
    r_squares += r * r;
  }
  const bool scales = adapts && p_squares > 0 && r_squares > 0;
  const double ratio = scales ? std::sqrt(p_squares) / std::sqrt(r_squares) : 1;
  const T lr = static_cast<T>(step.lr * ratio);
  for (int64_t i = 0; i < step.size(); ++i) p_out[i] = p[i] - lr * direction(i);
}

// Takes a power of beta one step on.
template <typename T>
void AdvancePower(const KernelContext& ctx, const OptimizerState& power, double beta) {
  T* to;
  const T* from = power.Open<T>(ctx, &to);
  *to = *from * static_cast<T>(beta);
}

// The kernel whose `update` is called with the type of the parameter and with each step.
template <typename Update>
absl::StatusOr<Kernel> MakeKernel(const KernelSpec& spec, GradKind kind, Update update) {
  WEFT_ASSIGN_OR_RETURN(const OptimizerCommon common, OptimizerCommon::Make(spec));
  WEFT_ASSIGN_OR_RETURN(const AdamStates states, AdamStates::Make(spec));
  const Number beta1(spec, "Beta1Tensor", "beta1"), beta2(spec, "Beta2Tensor", "beta2");
  const Number epsilon(spec, "EpsilonTensor", "epsilon");
  const bool keeps_powers =
      spec.attrs.Has("use_global_beta_pow") && spec.attrs.Bool("use_global_beta_pow");
  const int skip_index = spec.Input("SkipUpdate");
  return Kernel([=, grad = OptimizerGrad(kind)](const KernelContext& ctx) mutable -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const bool skip, SkipsUpdate(ctx.in(skip_index)));
    if (skip || !grad.visits_all()) {
      for (const OptimizerState& state :
           {common.param, states.moment1, states.moment2, states.beta1_pow, states.beta2_pow}) {
        state.Copy(ctx);
      }
    }
    if (skip) return absl::OkStatus();
    const Tensor& param = *ctx.in(common.param.in);
    WEFT_RETURN_IF_ERROR(grad.Read(*ctx.in(common.grad), param));
    WEFT_RETURN_IF_ERROR(states.Check(ctx, param));
    Step step = {ctx, common, states, grad};
    WEFT_ASSIGN_OR_RETURN(step.lr, common.LearningRate(ctx));
    WEFT_ASSIGN_OR_RETURN(step.beta1, beta1.Value(ctx));
    WEFT_ASSIGN_OR_RETURN(step.beta2, beta2.Value(ctx));
    WEFT_ASSIGN_OR_RETURN(step.epsilon, epsilon.Value(ctx));
    return ForFloatType("input Param", param, [&](auto tag) {
      using T = typename decltype(tag)::type;
      update(tag, step);
      if (keeps_powers) {
        states.beta1_pow.Copy(ctx);
        states.beta2_pow.Copy(ctx);
      } else {
        AdvancePower<T>(ctx, states.beta1_pow, step.beta1);
        AdvancePower<T>(ctx, states.beta2_pow, step.beta2);
      }
      return absl::OkStatus();
    });
  });
}

absl::StatusOr<Kernel> MakeAdam(const KernelSpec& spec, GradKind kind) {
  return MakeKernel(spec, kind, [](auto tag, const Step& step) {
    AdamUpdate<typename decltype(tag)::type>(step, /*shrink_factor=*/1);
  });
}

absl::StatusOr<Kernel> Adam(const KernelSpec& spec) { return MakeAdam(spec, GradKind::kDense); }

// With lazy_mode, rows without a gradient stay as they are, moments included.
absl::StatusOr<Kernel> AdamForRows(const KernelSpec& spec) {
  return MakeAdam(spec, spec.attrs.Bool("lazy_mode") ? GradKind::kRows : GradKind::kRowsAmongAll);
}

// Adam with learning rate lr_ratio lr, on a parameter that is first shrunk by (1 - that coeff).
absl::StatusOr<Kernel> AdamW(const KernelSpec& spec) {
  const double lr_ratio = spec.attrs.Float("lr_ratio");
  const double coeff = spec.attrs.Bool("with_decay") ? spec.attrs.Float("coeff") : 0;
  return MakeKernel(spec, GradKind::kDense, [=](auto tag, Step step) {
    step.lr *= lr_ratio;
    AdamUpdate<typename decltype(tag)::type>(step, 1 - step.lr * coeff);
  });
}

absl::StatusOr<Kernel> Lamb(const KernelSpec& spec) {
  const double weight_decay = spec.attrs.Float("weight_decay");
  const bool adapts = weight_decay > 0 || spec.attrs.Bool("always_adapt");
  return MakeKernel(spec, GradKind::kDense, [=](auto tag, const Step& step) {
    LambUpdate<typename decltype(tag)::type>(step, weight_decay, adapts);
  });
}

}  // namespace

void AddAdamKernels(KernelTable* table) {
  table->Add("adam", Adam);
  table->AddForRows("adam", AdamForRows);
  table->Add("adamw", AdamW);
  table->Add("lamb", Lamb);
}

}  // namespace weft
