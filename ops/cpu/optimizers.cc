// Updates of a parameter by its gradient. Every state goes in and comes out, mostly in place.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/cpu/kernel_util.h"

namespace weft {
namespace {

// A state: the input that holds it and the output that takes it on.
struct State {
  int in, out;

  static absl::StatusOr<State> Make(const KernelSpec& spec, const std::string& slot) {
    State state;
    WEFT_ASSIGN_OR_RETURN(state.in, RequiredInput(spec, slot));
    WEFT_ASSIGN_OR_RETURN(state.out, RequiredOutput(spec, slot + "Out"));
    return state;
  }

  // Readies the output and returns where the state is read, and through `to` where it is written.
  template <typename T>
  const T* Open(const KernelContext& ctx, T** to) const {
    const Tensor& from = *ctx.in(in);
    ctx.out(out)->Resize(from.dtype(), from.dims());
    *to = ctx.out(out)->data<T>();
    return from.data<T>();
  }

  absl::Status CheckLike(const KernelContext& ctx, absl::string_view slot,
                         const Tensor& param) const {
    return CheckSize(slot, *ctx.in(in), param.size());
  }

  void Copy(const KernelContext& ctx) const {
    const Tensor& from = *ctx.in(in);
    Tensor* to = ctx.out(out);
    if (to == &from) return;
    to->Resize(from.dtype(), from.dims());
    std::memcpy(to->raw(), from.raw(), from.bytes());
  }
};

// What every update reads.
struct Common {
  State param;
  int grad, learning_rate;

  static absl::StatusOr<Common> Make(const KernelSpec& spec) {
    WEFT_RETURN_IF_ERROR(NoInputs(spec, {"MasterParam"}));
    Common common;
    WEFT_ASSIGN_OR_RETURN(common.param, State::Make(spec, "Param"));
    WEFT_ASSIGN_OR_RETURN(common.grad, RequiredInput(spec, "Grad"));
    WEFT_ASSIGN_OR_RETURN(common.learning_rate, RequiredInput(spec, "LearningRate"));
    return common;
  }

  absl::StatusOr<double> LearningRate(const KernelContext& ctx) const {
    return ScalarValue("LearningRate", *ctx.in(learning_rate));
  }

  absl::Status CheckGrad(const KernelContext& ctx) const {
    return CheckSize("Grad", *ctx.in(grad), ctx.in(param.in)->size());
  }
};

// p -= lr g.
absl::StatusOr<Kernel> Sgd(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const Common common, Common::Make(spec));
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    WEFT_RETURN_IF_ERROR(common.CheckGrad(ctx));
    WEFT_ASSIGN_OR_RETURN(const double learning_rate, common.LearningRate(ctx));
    const Tensor& param = *ctx.in(common.param.in);
    return ForFloatType("input Param", param, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T lr = static_cast<T>(learning_rate);
      const T* g = ctx.in(common.grad)->data<T>();
      T* p_out;
      const T* p = common.param.Open<T>(ctx, &p_out);
      for (int64_t i = 0; i < param.size(); ++i) p_out[i] = p[i] - lr * g[i];
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
absl::StatusOr<Kernel> Momentum(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const Common common, Common::Make(spec));
  WEFT_ASSIGN_OR_RETURN(const State velocity, State::Make(spec, "Velocity"));
  WEFT_ASSIGN_OR_RETURN(const MomentumOptions options, MomentumOptions::Make(spec.attrs));
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    WEFT_RETURN_IF_ERROR(common.CheckGrad(ctx));
    WEFT_ASSIGN_OR_RETURN(const double learning_rate, common.LearningRate(ctx));
    const Tensor& param = *ctx.in(common.param.in);
    WEFT_RETURN_IF_ERROR(velocity.CheckLike(ctx, "Velocity", param));
    return ForFloatType("input Param", param, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T lr = static_cast<T>(learning_rate);
      const T mu = static_cast<T>(options.mu), l2_decay = static_cast<T>(options.l2_decay);
      const T rescale = static_cast<T>(options.rescale_grad);
      const T* grad = ctx.in(common.grad)->data<T>();
      T *p_out, *v_out;
      const T* p = common.param.Open<T>(ctx, &p_out);
      const T* v = velocity.Open<T>(ctx, &v_out);
      for (int64_t i = 0; i < param.size(); ++i) {
        const T g = rescale * grad[i] + l2_decay * p[i];
        const T new_v = mu * v[i] + g;
        p_out[i] = p[i] - lr * (options.use_nesterov ? g + mu * new_v : new_v);
        v_out[i] = new_v;
      }
      return absl::OkStatus();
    });
  });
}

// A number that an attribute gives, or a tensor instead of it.
struct Number {
  std::string slot;
  int index;
  double attribute;

  Number(const KernelSpec& spec, absl::string_view tensor_slot, absl::string_view attribute_name)
      : slot(tensor_slot),
        index(spec.Input(tensor_slot)),
        attribute(spec.attrs.Float(attribute_name)) {}

  absl::StatusOr<double> Value(const KernelContext& ctx) const {
    const Tensor* tensor = ctx.in(index);
    if (tensor == nullptr) return attribute;
    return ScalarValue(slot, *tensor);
  }
};

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
  State moment1, moment2, beta1_pow, beta2_pow;

  static absl::StatusOr<AdamStates> Make(const KernelSpec& spec) {
    AdamStates states;
    WEFT_ASSIGN_OR_RETURN(states.moment1, State::Make(spec, "Moment1"));
    WEFT_ASSIGN_OR_RETURN(states.moment2, State::Make(spec, "Moment2"));
    WEFT_ASSIGN_OR_RETURN(states.beta1_pow, State::Make(spec, "Beta1Pow"));
    WEFT_ASSIGN_OR_RETURN(states.beta2_pow, State::Make(spec, "Beta2Pow"));
    return states;
  }

  absl::Status Check(const KernelContext& ctx, const Tensor& param) const {
    WEFT_RETURN_IF_ERROR(moment1.CheckLike(ctx, "Moment1", param));
    WEFT_RETURN_IF_ERROR(moment2.CheckLike(ctx, "Moment2", param));
    WEFT_RETURN_IF_ERROR(CheckSize("Beta1Pow", *ctx.in(beta1_pow.in), 1));
    return CheckSize("Beta2Pow", *ctx.in(beta2_pow.in), 1);
  }
};

struct AdamNumbers {
  double lr, beta1, beta2, epsilon;
};

// m1 = beta1 m1 + (1 - beta1) g; m2 = beta2 m2 + (1 - beta2) g²;
// p -= lr' m1 / (√m2 + epsilon √(1 - b2)) with lr' = lr √(1 - b2) / (1 - b1),
// where b1 and b2, the powers of beta, already count this step.
template <typename T>
void AdamUpdate(const KernelContext& ctx, const Common& common, const AdamStates& states,
                const AdamNumbers& numbers) {
  const T b1 = *ctx.in(states.beta1_pow.in)->data<T>();
  const T b2 = *ctx.in(states.beta2_pow.in)->data<T>();
  const T beta1 = static_cast<T>(numbers.beta1), beta2 = static_cast<T>(numbers.beta2);
  const T correction = std::sqrt(1 - b2);
  const T lr = static_cast<T>(numbers.lr) * correction / (1 - b1);
  const T epsilon = static_cast<T>(numbers.epsilon) * correction;
  const T* g = ctx.in(common.grad)->data<T>();
  T *p_out, *m1_out, *m2_out;
  const T* p = common.param.Open<T>(ctx, &p_out);
  const T* m1 = states.moment1.Open<T>(ctx, &m1_out);
  const T* m2 = states.moment2.Open<T>(ctx, &m2_out);
  const int64_t size = ctx.in(common.param.in)->size();
  for (int64_t i = 0; i < size; ++i) {
    m1_out[i] = beta1 * m1[i] + (1 - beta1) * g[i];
    m2_out[i] = beta2 * m2[i] + (1 - beta2) * g[i] * g[i];
    p_out[i] = p[i] - lr * (m1_out[i] / (std::sqrt(m2_out[i]) + epsilon));
  }
}

// Takes a power of beta one step on.
template <typename T>
void AdvancePower(const KernelContext& ctx, const State& power, double beta) {
  T* to;
  const T* from = power.Open<T>(ctx, &to);
  *to = *from * static_cast<T>(beta);
}

absl::StatusOr<Kernel> Adam(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const Common common, Common::Make(spec));
  WEFT_ASSIGN_OR_RETURN(const AdamStates states, AdamStates::Make(spec));
  const Number beta1(spec, "Beta1Tensor", "beta1"), beta2(spec, "Beta2Tensor", "beta2");
  const Number epsilon(spec, "EpsilonTensor", "epsilon");
  const bool use_global_beta_pow = spec.attrs.Bool("use_global_beta_pow");
  const int skip_index = spec.Input("SkipUpdate");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const bool skip, SkipsUpdate(ctx.in(skip_index)));
    if (skip) {
      for (const State& state :
           {common.param, states.moment1, states.moment2, states.beta1_pow, states.beta2_pow}) {
        state.Copy(ctx);
      }
      return absl::OkStatus();
    }
    const Tensor& param = *ctx.in(common.param.in);
    WEFT_RETURN_IF_ERROR(common.CheckGrad(ctx));
    WEFT_RETURN_IF_ERROR(states.Check(ctx, param));
    AdamNumbers numbers;
    WEFT_ASSIGN_OR_RETURN(numbers.lr, common.LearningRate(ctx));
    WEFT_ASSIGN_OR_RETURN(numbers.beta1, beta1.Value(ctx));
    WEFT_ASSIGN_OR_RETURN(numbers.beta2, beta2.Value(ctx));
    WEFT_ASSIGN_OR_RETURN(numbers.epsilon, epsilon.Value(ctx));
    return ForFloatType("input Param", param, [&](auto tag) {
      using T = typename decltype(tag)::type;
      AdamUpdate<T>(ctx, common, states, numbers);
      if (use_global_beta_pow) {
        states.beta1_pow.Copy(ctx);
        states.beta2_pow.Copy(ctx);
      } else {
        AdvancePower<T>(ctx, states.beta1_pow, numbers.beta1);
        AdvancePower<T>(ctx, states.beta2_pow, numbers.beta2);
      }
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddOptimizerKernels(KernelTable* table) {
  table->Add("sgd", Sgd);
  table->Add("momentum", Momentum);
  table->Add("adam", Adam);
}

}  // namespace weft
