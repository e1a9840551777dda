// Updates of a parameter by its gradient that need no bias correction.
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/optimizer_common.h"
#include "ops/cpu/optimizer_grad.h"

namespace weft {
namespace {

using GradKind = OptimizerGrad::Kind;

// p -= lr g.
template <GradKind kind>
absl::StatusOr<Kernel> Sgd(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const OptimizerCommon common, OptimizerCommon::Make(spec));
  return Kernel([=, grad = OptimizerGrad(kind)](const KernelContext& ctx) mutable -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const double learning_rate, common.LearningRate(ctx));
    const Tensor& param = *ctx.in(common.param.in);
    WEFT_RETURN_IF_ERROR(grad.Read(*ctx.in(common.grad), param));
    if (!grad.visits_all()) common.param.Copy(ctx);
    return ForFloatType("input Param", param, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T lr = static_cast<T>(learning_rate);
      T* p_out;
      const T* p = common.param.Open<T>(ctx, &p_out);
      grad.ForEachRun<T>([&](int64_t begin, int64_t count, const T* g) {
        for (int64_t k = 0, i = begin; k < count; ++k, ++i) p_out[i] = p[i] - lr * g[k];
      });
      return absl::OkStatus();
    });
  });
}

struct MomentumOptions {
  double mu, rescale_grad;
  double l2_decay;  // 0: none
  bool use_nesterov;

  static absl::StatusOr<MomentumOptions> Make(const OpAttrs& attrs) {
    const std::string& method = attrs.String("regularization_method");
    if (!method.empty() && method != "l2_decay") {
      return absl::UnimplementedError(
          absl::StrCat("attribute regularization_method: no kernel for '", method, "'"));
    }
    MomentumOptions options;
    options.mu = attrs.Float("mu");
    options.rescale_grad = attrs.Float("rescale_grad");
    options.l2_decay = method.empty() ? 0 : attrs.Float("regularization_coeff");
    options.use_nesterov = attrs.Bool("use_nesterov");
    return options;
  }
};

// g = rescale_grad Grad + l2_decay p; v = mu v + g; p -= lr v, or lr (g + mu v) by Nesterov.
template <GradKind kind>
absl::StatusOr<Kernel> Momentum(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const OptimizerCommon common, OptimizerCommon::Make(spec));
  WEFT_ASSIGN_OR_RETURN(const OptimizerState velocity, OptimizerState::Make(spec, "Velocity"));
  WEFT_ASSIGN_OR_RETURN(const MomentumOptions options, MomentumOptions::Make(spec.attrs));
  return Kernel([=, grad = OptimizerGrad(kind)](const KernelContext& ctx) mutable -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const double learning_rate, common.LearningRate(ctx));
    const Tensor& param = *ctx.in(common.param.in);
    WEFT_RETURN_IF_ERROR(grad.Read(*ctx.in(common.grad), param));
    WEFT_RETURN_IF_ERROR(velocity.CheckLike(ctx, "Velocity", param));
    return ForFloatType("input Param", param, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T lr = static_cast<T>(learning_rate);
      const T mu = static_cast<T>(options.mu), l2_decay = static_cast<T>(options.l2_decay);
      const T rescale = static_cast<T>(options.rescale_grad);
      T *p_out, *v_out;
      const T* p = common.param.Open<T>(ctx, &p_out);
      const T* v = velocity.Open<T>(ctx, &v_out);
      grad.ForEachRun<T>([&](int64_t begin, int64_t count, const T* run) {
        for (int64_t k = 0, i = begin; k < count; ++k, ++i) {
          const T g = rescale * run[k] + l2_decay * p[i];
          const T new_v = mu * v[i] + g;
          p_out[i] = p[i] - lr * (options.use_nesterov ? g + mu * new_v : new_v);
          v_out[i] = new_v;
        }
      });
      return absl::OkStatus();
    });
  });
}

// m += g²; p -= lr g / (√m + epsilon).
template <GradKind kind>
absl::StatusOr<Kernel> Adagrad(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const OptimizerCommon common, OptimizerCommon::Make(spec));
  WEFT_ASSIGN_OR_RETURN(const OptimizerState moment, OptimizerState::Make(spec, "Moment"));
  const double epsilon_attr = spec.attrs.Float("epsilon");
  return Kernel([=, grad = OptimizerGrad(kind)](const KernelContext& ctx) mutable -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const double learning_rate, common.LearningRate(ctx));
    const Tensor& param = *ctx.in(common.param.in);
    WEFT_RETURN_IF_ERROR(grad.Read(*ctx.in(common.grad), param));
    WEFT_RETURN_IF_ERROR(moment.CheckLike(ctx, "Moment", param));
    if (!grad.visits_all()) {
      common.param.Copy(ctx);
      moment.Copy(ctx);
    }
    return ForFloatType("input Param", param, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T lr = static_cast<T>(learning_rate), epsilon = static_cast<T>(epsilon_attr);
      T *p_out, *m_out;
      const T* p = common.param.Open<T>(ctx, &p_out);
      const T* m = moment.Open<T>(ctx, &m_out);
      grad.ForEachRun<T>([&](int64_t begin, int64_t count, const T* g) {
        for (int64_t k = 0, i = begin; k < count; ++k, ++i) {
          const T new_m = m[i] + g[k] * g[k];
          p_out[i] = p[i] - lr * g[k] / (std::sqrt(new_m) + epsilon);
          m_out[i] = new_m;
        }
      });
      return absl::OkStatus();
    });
  });
}

struct RmspropOptions {
  double decay, epsilon, momentum;

  explicit RmspropOptions(const OpAttrs& attrs)
      : decay(attrs.Float("decay")),
        epsilon(attrs.Float("epsilon")),
        momentum(attrs.Float("momentum")) {}
};

struct RmspropStates {
  OptimizerState mean_square, moment;
  // The mean of gradients: of the centered form. The other one leaves it as it is.
  absl::optional<OptimizerState> mean_grad;
  bool centered;

  static absl::StatusOr<RmspropStates> Make(const KernelSpec& spec) {
    RmspropStates states;
    WEFT_ASSIGN_OR_RETURN(states.mean_square, OptimizerState::Make(spec, "MeanSquare"));
    WEFT_ASSIGN_OR_RETURN(states.moment, OptimizerState::Make(spec, "Moment"));
    states.centered = spec.attrs.Bool("centered");
    if (states.centered || spec.Output("MeanGradOut") >= 0) {
      WEFT_ASSIGN_OR_RETURN(states.mean_grad, OptimizerState::Make(spec, "MeanGrad"));
    }
    return states;
  }

  absl::Status Check(const KernelContext& ctx, const Tensor& param) const {
    WEFT_RETURN_IF_ERROR(mean_square.CheckLike(ctx, "MeanSquare", param));
    WEFT_RETURN_IF_ERROR(moment.CheckLike(ctx, "Moment", param));
    return centered ? mean_grad->CheckLike(ctx, "MeanGrad", param) : absl::OkStatus();
  }
};

// s = decay s + (1 - decay) g²; m = momentum m + lr g / √(s + epsilon); p -= m.
// Centered: a = decay a + (1 - decay) g, and s - a² instead of s under the root.
template <typename T>
void RmspropUpdate(const KernelContext& ctx, const OptimizerCommon& common,
                   const RmspropStates& states, const RmspropOptions& options, T lr) {
  const T decay = static_cast<T>(options.decay), epsilon = static_cast<T>(options.epsilon);
  const T momentum = static_cast<T>(options.momentum);
  const T* g = ctx.in(common.grad)->data<T>();
  T *p_out, *s_out, *m_out, *a_out = nullptr;
  const T* p = common.param.Open<T>(ctx, &p_out);
  const T* s = states.mean_square.Open<T>(ctx, &s_out);
  const T* m = states.moment.Open<T>(ctx, &m_out);
  const T* a = states.centered ? states.mean_grad->Open<T>(ctx, &a_out) : nullptr;
  const int64_t size = ctx.in(common.param.in)->size();
  for (int64_t i = 0; i < size; ++i) {
    s_out[i] = decay * s[i] + (1 - decay) * g[i] * g[i];
    T variance = s_out[i];
    if (states.centered) {
      a_out[i] = decay * a[i] + (1 - decay) * g[i];
      variance -= a_out[i] * a_out[i];
    }
    m_out[i] = momentum * m[i] + lr * g[i] / std::sqrt(variance + epsilon);
    p_out[i] = p[i] - m_out[i];
  }
}

absl::StatusOr<Kernel> Rmsprop(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const OptimizerCommon common, OptimizerCommon::Make(spec));
  WEFT_ASSIGN_OR_RETURN(const RmspropStates states, RmspropStates::Make(spec));
  const RmspropOptions options(spec.attrs);
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    WEFT_RETURN_IF_ERROR(common.CheckGrad(ctx));
    WEFT_ASSIGN_OR_RETURN(const double learning_rate, common.LearningRate(ctx));
    const Tensor& param = *ctx.in(common.param.in);
    WEFT_RETURN_IF_ERROR(states.Check(ctx, param));
    return ForFloatType("input Param", param, [&](auto tag) {
      using T = typename decltype(tag)::type;
      RmspropUpdate<T>(ctx, common, states, options, static_cast<T>(learning_rate));
      if (states.mean_grad && !states.centered) states.mean_grad->Copy(ctx);
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddOptimizerKernels(KernelTable* table) {
  table->Add("adagrad", Adagrad<GradKind::kDense>);
  table->AddForRows("adagrad", Adagrad<GradKind::kRows>);
  table->Add("momentum", Momentum<GradKind::kDense>);
  table->AddForRows("momentum", Momentum<GradKind::kRowsAmongAll>);
  table->Add("rmsprop", Rmsprop);
  table->Add("sgd", Sgd<GradKind::kDense>);
  table->AddForRows("sgd", Sgd<GradKind::kRows>);
}

}  // namespace weft
