// Updates of a parameter by its gradient, by the formulas of ops/formulas/update.h.
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "ops/formulas/update.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// A tensor that is both input and output, mostly in place.
struct State {
  In in;
  Out out;
};

template <typename T>
struct Elements {
  const T* from;
  T* to;
};

template <typename T>
Elements<T> ElementsOf(const State& state, const KernelContext& ctx) {
  return {state.in.data<T>(ctx), state.out.data<T>(ctx)};
}

absl::StatusOr<State> MakeState(OpKernel& op, const char* slot) {
  WEFT_RETURN_IF_ERROR(RequiredInput(op.spec(), slot).status());
  State state;
  state.in = op.in(slot);
  for (const SlotSchema& output : op.spec().schema->outputs()) {
    if (output.in_place_of == slot) state.out = op.out(output.name);
  }
  op.InPlace(state.out, state.in);
  return state;
}

// The parameter, the gradient and n states of an update.
template <size_t n>
struct Operands {
  State param;
  In grad, rate;
  std::array<State, n> states;

  static absl::StatusOr<Operands> Make(OpKernel& op, const formulas::StateSlots<n>& slots) {
    Operands operands;
    WEFT_ASSIGN_OR_RETURN(operands.param, MakeState(op, "Param"));
    WEFT_RETURN_IF_ERROR(RequiredInput(op.spec(), "LearningRate").status());
    operands.grad = op.in("Grad");
    operands.rate = op.in("LearningRate");
    auto slot = slots.begin();
    for (State& state : operands.states) {
      WEFT_ASSIGN_OR_RETURN(state, MakeState(op, *slot++));
    }
    return operands;
  }
};

// --- Updates of one launch -----------------------------------------------------------------------

// The learning rate: one number, in the device's memory.
template <typename T>
struct PlainRate {
  const T* rate;
  template <typename F>
  __device__ T operator()(const F&) const {
    return *rate;
  }
};

template <typename T>
struct CorrectedRate {
  const T *rate, *b1;
  template <typename F>
  __device__ T operator()(const F& f) const {
    return f.CorrectedRate(*rate, *b1);
  }
};

template <typename T, typename F, typename Rate, size_t n>
struct UpdateElement {
  F f;
  Rate rate;
  Elements<T> param;
  const T* grad;
  Elements<T> states[n > 0 ? n : 1];

  __device__ void operator()(int64_t i) const { Run(i, std::make_index_sequence<n>()); }

 private:
  template <size_t... k>
  __device__ void Run(int64_t i, std::index_sequence<k...>) const {
    T p = param.from[i];
    [[maybe_unused]] T s[n > 0 ? n : 1] = {states[k].from[i]...};
    f(rate(f), p, grad[i], s[k]...);
    param.to[i] = p;
    ((states[k].to[i] = s[k]), ...);
  }
};

template <typename T, typename F, typename Rate, size_t n>
absl::Status Launch(const KernelContext& ctx, const Operands<n>& operands, const F& f, Rate rate) {
  UpdateElement<T, F, Rate, n> update{
      f, rate, ElementsOf<T>(operands.param, ctx), operands.grad.template data<T>(ctx), {}};
  Elements<T>* elements = update.states;
  for (const State& state : operands.states) *elements++ = ElementsOf<T>(state, ctx);
  return ForEach(ctx, operands.param.in(ctx).size(), update);
}

template <typename F>
absl::StatusOr<Kernel> MakeUpdate(OpKernel op, const F& f) {
  WEFT_ASSIGN_OR_RETURN(const auto operands, Operands<F::kStates.size()>::Make(op, F::kStates));
  return op.Make(Floats(operands.param.in), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return Launch<T>(ctx, operands, f, PlainRate<T>{operands.rate.template data<T>(ctx)});
  });
}

template <typename F>
absl::StatusOr<Kernel> Update(OpKernel op) {
  return MakeUpdate(op, F(op.attrs()));
}

absl::StatusOr<Kernel> Momentum(OpKernel op) {
  formulas::Momentum f(op.attrs());
  WEFT_ASSIGN_OR_RETURN(f.l2_decay, formulas::L2Decay(op.attrs().String("regularization_method"),
                                                      op.attrs().Float("regularization_coeff")));
  return MakeUpdate(op, f);
}

// --- Adam and its variants -----------------------------------------------------------------------

absl::StatusOr<Kernel> Adamax(OpKernel op) {
  const formulas::Adamax f(op.attrs());
  WEFT_ASSIGN_OR_RETURN(const auto operands, Operands<2>::Make(op, f.kStates));
  const In b1 = op.in("Beta1Pow");
  return op.Make(Floats(operands.param.in), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return Launch<T>(
        ctx, operands, f,
        CorrectedRate<T>{operands.rate.template data<T>(ctx), b1.template data<T>(ctx)});
  });
}

template <typename T>
struct AdamElement {
  formulas::Adam f;
  const T *rate, *b1, *b2;
  Elements<T> param;
  const T* grad;
  Elements<T> moment1, moment2;

  __device__ void operator()(int64_t i) const {
    T p = param.from[i], m1 = moment1.from[i], m2 = moment2.from[i];
    f.At(*rate, *b1, *b2)(p, grad[i], m1, m2);
    param.to[i] = p;
    moment1.to[i] = m1;
    moment2.to[i] = m2;
  }
};

// Advances the powers of beta by one step; one element.
template <typename T>
struct AdvancePowers {
  T beta1, beta2;
  Elements<T> b1, b2;
  __device__ void operator()(int64_t) const {
    *b1.to = *b1.from * beta1;
    *b2.to = *b2.from * beta2;
  }
};

template <typename F>
absl::StatusOr<Kernel> AdamUpdate(OpKernel op) {
  const formulas::Adam f = F(op.attrs());
  WEFT_ASSIGN_OR_RETURN(const auto operands, Operands<2>::Make(op, f.kStates));
  WEFT_ASSIGN_OR_RETURN(const State b1, MakeState(op, "Beta1Pow"));
  WEFT_ASSIGN_OR_RETURN(const State b2, MakeState(op, "Beta2Pow"));
  // Otherwise another op advances the powers.
  const bool advances = !op.attrs().Bool("use_global_beta_pow");
  return op.Make(
      Floats(operands.param.in), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        const Elements<T> power1 = ElementsOf<T>(b1, ctx);
        const Elements<T> power2 = ElementsOf<T>(b2, ctx);
        WEFT_RETURN_IF_ERROR(ForEach(
            ctx, operands.param.in(ctx).size(),
            AdamElement<T>{f, operands.rate.template data<T>(ctx), power1.from, power2.from,
                           ElementsOf<T>(operands.param, ctx), operands.grad.template data<T>(ctx),
                           ElementsOf<T>(operands.states[0], ctx),
                           ElementsOf<T>(operands.states[1], ctx)}));
        const T beta1 = static_cast<T>(advances ? f.beta1 : 1);
        const T beta2 = static_cast<T>(advances ? f.beta2 : 1);
        return ForEach(ctx, 1, AdvancePowers<T>{beta1, beta2, power1, power2});
      });
}

}  // namespace

void AddGpuOptimizerKernels(KernelTable* table) {
  table->Add("adadelta", Update<formulas::Adadelta>);
  table->Add("adagrad", Update<formulas::Adagrad>);
  table->Add("adam", AdamUpdate<formulas::Adam>);
  table->Add("adamax", Adamax);
  table->Add("adamw", AdamUpdate<formulas::AdamW>);
  table->Add("decayed_adagrad", Update<formulas::DecayedAdagrad>);
  table->Add("ftrl", Update<formulas::Ftrl>);
  table->Add("momentum", Momentum);
  table->Add("sgd", Update<formulas::Sgd>);
}

}  // namespace weft
