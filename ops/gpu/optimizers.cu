// Updates of parameters by their gradients, by the formulas of ops/formulas/update.h. An op with
// the variables of many parameters updates as many of them in one launch as its arguments hold.
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "ops/formulas/update.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/tensor_list.h"
#include "ops/gpu/update_state.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- On the device -------------------------------------------------------------------------------

// The numbers of one tensor that a step of a formula depends on.
template <typename T>
struct Scalars {
  const T *rate, *b1, *b2;  // b1 and b2 may be null
};

// Steps of formulas: At(scalars)(p, g, states...) updates an element.
template <typename F>
struct Plain {
  F f;
  template <typename T>
  struct Step {
    F f;
    T lr;
    template <typename... S>
    WEFT_DEVICE void operator()(T& p, T g, S&... states) const {
      f(lr, p, g, states...);
    }
  };
  template <typename T>
  WEFT_DEVICE Step<T> At(const Scalars<T>& s) const {
    return {f, *s.rate};
  }
};

struct AdamaxStep : Plain<formulas::Adamax> {
  template <typename T>
  WEFT_DEVICE Step<T> At(const Scalars<T>& s) const {
    return {f, f.CorrectedRate(*s.rate, *s.b1)};
  }
};

struct AdamStep {
  formulas::Adam f;
  template <typename T>
  WEFT_DEVICE formulas::Adam::Step<T> At(const Scalars<T>& s) const {
    return f.At(*s.rate, *s.b1, *s.b2);
  }
};

// As many elements as one load or store moves.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T values[kSize];
};

// One parameter, in place.
template <typename T, size_t n>
struct UpdatedTensor {
  Updated<T> updated;
  int64_t size;
  T* states[n > 0 ? n : 1];
  Scalars<T> scalars;
  bool is_aligned;
};

// Updates the elements of a pack.
template <typename T, typename F, size_t n>
struct UpdatePack {
  F f;
  const bool* skip;  // may be null
  WEFT_DEVICE void operator()(const UpdatedTensor<T, n>& t, int64_t pack) const {
    if (skip == nullptr || !*skip) Run(t, pack * Pack<T>::kSize, std::make_index_sequence<n>());
  }

 private:
  template <size_t... k>
  WEFT_DEVICE void Run(const UpdatedTensor<T, n>& t, int64_t at, std::index_sequence<k...>) const {
    const auto step = f.At(t.scalars);
    const int64_t rest = t.size - at;
    const int width = rest < Pack<T>::kSize ? static_cast<int>(rest) : Pack<T>::kSize;
    const bool is_whole = t.is_aligned && width == Pack<T>::kSize;
    Pack<T> p, g, s[n > 0 ? n : 1];
    Load(t.updated.param, at, width, is_whole, &p);
    (Load(t.states[k], at, width, is_whole, &s[k]), ...);
    if (t.updated.grad_half == Half::kNo) {
      Load(static_cast<const T*>(t.updated.grad), at, width, is_whole, &g);
    } else {
      for (int i = 0; i < width; ++i) g.values[i] = t.updated.Gradient(at + i);
    }
    for (int i = 0; i < width; ++i) step(p.values[i], g.values[i], s[k].values[i]...);
    Store(p, at, width, is_whole, t.updated.param);
    (Store(s[k], at, width, is_whole, t.states[k]), ...);
    for (int i = 0; i < width; ++i) t.updated.Round(p.values[i], at + i);
  }
  WEFT_DEVICE static void Load(const T* from, int64_t at, int width, bool is_whole, Pack<T>* to) {
    if (is_whole) {
      *to = *reinterpret_cast<const Pack<T>*>(from + at);
    } else {
      for (int i = 0; i < width; ++i) to->values[i] = from[at + i];
    }
  }
  WEFT_DEVICE static void Store(const Pack<T>& from, int64_t at, int width, bool is_whole, T* to) {
    if (is_whole) {
      *reinterpret_cast<Pack<T>*>(to + at) = from;
    } else {
      for (int i = 0; i < width; ++i) to[at + i] = from.values[i];
    }
  }
};

// A power of beta1 or beta2: one element.
template <typename T>
struct Power {
  T beta;
  T* value;
};

struct AdvancePower {
  const bool* skip;
  template <typename T>
  WEFT_DEVICE void operator()(const Power<T>& power, int64_t) const {
    if (skip == nullptr || !*skip) *power.value *= power.beta;
  }
};

// --- On the host ---------------------------------------------------------------------------------

// The parameters, the gradients and n states of an update.
template <size_t n>
struct Operands {
  State param, master, b1, b2;
  State mean_grad;  // of rmsprop, if that only passes it on
  In grad, rate, skip;
  std::array<State, n> states;

  static absl::StatusOr<Operands> Make(OpKernel& op, const formulas::StateSlots<n>& slots) {
    Operands o;
    WEFT_ASSIGN_OR_RETURN(o.param, MakeState(op, "Param"));
    WEFT_ASSIGN_OR_RETURN(o.master, MakeState(op, "MasterParam"));
    WEFT_ASSIGN_OR_RETURN(o.b1, MakeState(op, "Beta1Pow"));
    WEFT_ASSIGN_OR_RETURN(o.b2, MakeState(op, "Beta2Pow"));
    const bool updates_mean_grad = absl::c_linear_search(slots, absl::string_view("MeanGrad"));
    if (!updates_mean_grad) {
      WEFT_ASSIGN_OR_RETURN(o.mean_grad, MakeState(op, "MeanGrad"));
    }
    o.grad = op.in("Grad");
    o.rate = op.in("LearningRate");
    if (!o.rate) return absl::InvalidArgumentError("input LearningRate: missing");
    if (op.spec().schema->FindInput("SkipUpdate") != nullptr) o.skip = op.in("SkipUpdate");
    auto slot = slots.begin();
    for (State& state : o.states) {
      WEFT_ASSIGN_OR_RETURN(state, MakeState(op, *slot++));
    }
    const int count = o.param.in.count();
    const auto check = [&](absl::string_view name, int found) {
      if (found == count) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("input ", name, ": expected ", count, " variables as Param, found ", found));
    };
    WEFT_RETURN_IF_ERROR(check("Grad", o.grad.count()));
    if (o.rate.count() > 1) WEFT_RETURN_IF_ERROR(check("LearningRate", o.rate.count()));
    for (const State& state : o.states) WEFT_RETURN_IF_ERROR(check(state.slot, state.in.count()));
    for (const State* state : {&o.master, &o.b1, &o.b2}) {
      if (state->in) WEFT_RETURN_IF_ERROR(check(state->slot, state->in.count()));
    }
    if (!o.skip) op.MergesUpdates();
    return o;
  }

  // The outputs that are other variables than the inputs become copies of them.
  absl::Status CopyToOutputs(const KernelContext& ctx) const {
    for (const State* state : {&param, &master, &b1, &b2, &mean_grad}) {
      WEFT_RETURN_IF_ERROR(weft::CopyToOutputs(ctx, *state));
    }
    for (const State& state : states) {
      WEFT_RETURN_IF_ERROR(weft::CopyToOutputs(ctx, state));
    }
    return absl::OkStatus();
  }

  // Tensor i, after CopyToOutputs.
  template <typename T>
  absl::StatusOr<UpdatedTensor<T, n>> At(const KernelContext& ctx, int i) const {
    UpdatedTensor<T, n> t{};
    WEFT_ASSIGN_OR_RETURN(t.updated, UpdatedOf<T>(ctx, param, master, grad, i));
    t.size = param.in(ctx, i).size();
    uintptr_t bits =
        reinterpret_cast<uintptr_t>(t.updated.param) | reinterpret_cast<uintptr_t>(t.updated.grad);
    T** to_state = t.states;
    for (const State& state : states) {
      WEFT_RETURN_IF_ERROR(CheckSize(state.slot, state.in(ctx, i), t.size));
      *to_state = state.out.template data<T>(ctx, i);
      bits |= reinterpret_cast<uintptr_t>(*to_state++);
    }
    t.is_aligned = bits % alignof(Pack<T>) == 0;
    const int r = rate.count() == 1 ? 0 : i;
    WEFT_RETURN_IF_ERROR(CheckSize("LearningRate", rate(ctx, r), 1));
    t.scalars.rate = rate.template data<T>(ctx, r);
    for (const auto& [state, to] : {std::make_pair(&b1, &t.scalars.b1), {&b2, &t.scalars.b2}}) {
      if (!state->in) continue;
      WEFT_RETURN_IF_ERROR(CheckSize(state->slot, state->in(ctx, i), 1));
      *to = (state->out ? &state->out(ctx, i) : &state->in(ctx, i))->template data<T>();
    }
    return t;
  }
};

template <typename T, typename F, size_t n>
absl::Status Run(const KernelContext& ctx, const Operands<n>& operands, const F& f,
                 const bool* skip) {
  TensorList<UpdatedTensor<T, n>, UpdatePack<T, F, n>> list(ctx, {f, skip});
  for (int i = 0; i < operands.param.in.count(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const auto tensor, operands.template At<T>(ctx, i));
    WEFT_RETURN_IF_ERROR(list.Add(tensor, (tensor.size + Pack<T>::kSize - 1) / Pack<T>::kSize));
  }
  return list.Launch();
}

// `after`(ctx, skip, T()) runs after the update.
template <typename F, size_t n, typename After>
absl::StatusOr<Kernel> MakeStep(OpKernel& op, const Operands<n>& operands, const F& f,
                                After after) {
  const auto run = [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_RETURN_IF_ERROR(operands.CopyToOutputs(ctx));
    const bool* const skip = operands.skip.template data_or_null<bool>(ctx);
    WEFT_RETURN_IF_ERROR((Run<T>(ctx, operands, f, skip)));
    return after(ctx, operands, skip, zero);
  };
  return MakeUpdate(op, operands.param, operands.master, run);
}

constexpr auto kNothing = [](const auto&...) { return absl::OkStatus(); };

template <typename F>
absl::StatusOr<Kernel> Update(OpKernel op) {
  WEFT_ASSIGN_OR_RETURN(const auto operands, Operands<F::kStates.size()>::Make(op, F::kStates));
  return MakeStep(op, operands, Plain<F>{F(op.attrs())}, kNothing);
}

absl::StatusOr<Kernel> Momentum(OpKernel op) {
  formulas::Momentum f(op.attrs());
  WEFT_ASSIGN_OR_RETURN(f.l2_decay, formulas::L2Decay(op.attrs().String("regularization_method"),
                                                      op.attrs().Float("regularization_coeff")));
  WEFT_ASSIGN_OR_RETURN(const auto operands, Operands<1>::Make(op, f.kStates));
  return MakeStep(op, operands, Plain<formulas::Momentum>{f}, kNothing);
}

absl::StatusOr<Kernel> Rmsprop(OpKernel op) {
  if (!op.attrs().Bool("centered")) return Update<formulas::Rmsprop>(std::move(op));
  return Update<formulas::CenteredRmsprop>(std::move(op));
}

absl::StatusOr<Kernel> Adamax(OpKernel op) {
  WEFT_ASSIGN_OR_RETURN(const auto operands, Operands<2>::Make(op, formulas::Adamax::kStates));
  if (!operands.b1.in) return absl::InvalidArgumentError("input Beta1Pow: missing");
  return MakeStep(op, operands, AdamaxStep{{formulas::Adamax(op.attrs())}}, kNothing);
}

template <typename F>
absl::StatusOr<Kernel> AdamUpdate(OpKernel op) {
  const formulas::Adam f = F(op.attrs());
  if (f.amsgrad) return absl::UnimplementedError("attribute amsgrad: no kernel for true");
  if (f.use_nesterov) return absl::UnimplementedError("attribute use_nesterov: no kernel for true");
  WEFT_ASSIGN_OR_RETURN(const auto operands, Operands<2>::Make(op, f.kStates));
  if (!operands.b1.in || !operands.b2.in) {
    return absl::InvalidArgumentError("inputs Beta1Pow and Beta2Pow: missing");
  }
  // Otherwise another op advances the powers.
  const bool advances = !op.attrs().Bool("use_global_beta_pow");
  const auto advance = [=](const KernelContext& ctx, const Operands<2>& o, const bool* skip,
                           auto zero) -> absl::Status {
    using T = decltype(zero);
    TensorList<Power<T>, AdvancePower> list(ctx, {skip});
    for (const auto& [state, beta] : {std::make_pair(&o.b1, f.beta1), {&o.b2, f.beta2}}) {
      for (int i = 0; advances && i < state->out.count(); ++i) {
        T* const power = state->out.template data<T>(ctx, i);
        WEFT_RETURN_IF_ERROR(list.Add({static_cast<T>(beta), power}, 1));
      }
    }
    return list.Launch();
  };
  return MakeStep(op, operands, AdamStep{f}, advance);
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
  table->Add("merged_adam", AdamUpdate<formulas::Adam>);
  table->Add("momentum", Momentum);
  table->Add("rmsprop", Rmsprop);
  table->Add("sgd", Update<formulas::Sgd>);
}

}  // namespace weft
