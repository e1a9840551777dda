// Optimizers that Paddle has since version 3, by the formulas of ops/formulas/paddle3_updates.h.
#include <array>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/formulas/paddle3_updates.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/update_state.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- On the device -------------------------------------------------------------------------------

// f(p, g) updates element i.
template <typename T, typename F>
WEFT_DEVICE void Apply(const Updated<T>& updated, int64_t i, F f) {
  T p = updated.param[i];
  f(p, updated.Gradient(i));
  updated.param[i] = p;
  updated.Round(p, i);
}

template <typename T, typename N>
struct AsgdElement {
  Updated<T> updated;
  const T* rate;
  const N* n;
  T *d, *y;
  WEFT_DEVICE void operator()(int64_t i) const {
    const formulas::AsgdStep<T> f{*rate, static_cast<T>(*n)};
    Apply(updated, i, [&](T& p, T g) { f(p, g, d[i], y[i]); });
  }
};

template <typename T, typename N>
struct RpropElement {
  Updated<T> updated;
  const N *etas, *range;
  T *prev, *rate;
  WEFT_DEVICE void operator()(int64_t i) const {
    const formulas::RpropStep<T> f{static_cast<T>(etas[0]), static_cast<T>(etas[1]),
                                   static_cast<T>(range[0]), static_cast<T>(range[1])};
    Apply(updated, i, [&](T& p, T g) { f(p, g, prev[i], rate[i]); });
  }
};

// Advance the powers of a step, and make the step of them.
struct NadamPowers {
  formulas::Nadam f;
  template <typename T>
  WEFT_DEVICE formulas::NadamStep<T> At(double lr, double (&powers)[3]) const {
    powers[0] *= f.beta2;
    powers[1] *= formulas::Nadam::kDecay;
    const auto step = f.template At<T>(lr, powers[0], powers[1], powers[2]);
    powers[2] *= f.Mu(powers[1]);
    return step;
  }
};

struct RadamPowers {
  formulas::Radam f;
  template <typename T>
  WEFT_DEVICE formulas::RadamStep<T> At(double lr, double (&powers)[3]) const {
    powers[0] *= f.beta1;
    powers[1] *= f.beta2;
    powers[2] = f.NextRho(powers[2], powers[1]);
    return f.template At<T>(lr, powers[0], powers[1], powers[2]);
  }
};

// Of one element, or as many as the parameter has.
template <typename T>
struct PowersOf {
  T* values[3];
  int64_t stride[3];  // 0 or 1
  WEFT_DEVICE void Read(int64_t i, double (&to)[3]) const {
    for (int k = 0; k < 3; ++k) to[k] = static_cast<double>(values[k][i * stride[k]]);
  }
};

template <typename T, typename F>
struct StepByPowers {
  F f;
  Updated<T> updated;
  const T* rate;
  PowersOf<T> powers;
  T *m1, *m2;
  WEFT_DEVICE void operator()(int64_t i) const {
    double now[3];
    powers.Read(i, now);
    const auto step = f.template At<T>(static_cast<double>(*rate), now);
    Apply(updated, i, [&](T& p, T g) { step(p, g, m1[i], m2[i]); });
  }
};

// After all steps, which read the powers. One launch has those of one size: a power may depend on
// another one, so that mixed sizes are refused.
template <typename T, typename F>
struct AdvancePowers {
  F f;
  PowersOf<T> powers;
  WEFT_DEVICE void operator()(int64_t i) const {
    double now[3];
    powers.Read(i, now);
    f.template At<T>(0, now);
    for (int k = 0; k < 3; ++k) powers.values[k][i * powers.stride[k]] = static_cast<T>(now[k]);
  }
};

// --- On the host ---------------------------------------------------------------------------------

struct Operands {
  State param, master;
  std::array<State, 5> states;  // the first ones
  In grad;

  static absl::StatusOr<Operands> Make(OpKernel& op, std::initializer_list<const char*> slots) {
    Operands o;
    WEFT_ASSIGN_OR_RETURN(o.param, MakeState(op, "Param"));
    WEFT_ASSIGN_OR_RETURN(o.master, MakeState(op, "MasterParam"));
    o.grad = op.in("Grad");
    auto state = o.states.begin();
    for (const char* slot : slots) {
      WEFT_ASSIGN_OR_RETURN(*state, MakeState(op, slot));
      if (!state->in) return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": missing"));
      ++state;
    }
    return o;
  }

  // Of an element of the parameter.
  template <typename T>
  absl::StatusOr<Updated<T>> At(const KernelContext& ctx) const {
    for (const State* state : {&param, &master}) {
      WEFT_RETURN_IF_ERROR(CopyToOutputs(ctx, *state));
    }
    for (const State& state : states) WEFT_RETURN_IF_ERROR(CopyToOutputs(ctx, state));
    return UpdatedOf<T>(ctx, param, master, grad, 0);
  }

  // A state of the size of the parameter.
  template <typename T>
  absl::StatusOr<T*> StateAt(const KernelContext& ctx, int k) const {
    WEFT_RETURN_IF_ERROR(CheckSize(states[k].slot, states[k].in(ctx), param.in(ctx).size()));
    return states[k].out.template data<T>(ctx);
  }
};

absl::StatusOr<Kernel> Asgd(OpKernel op) {
  WEFT_ASSIGN_OR_RETURN(const Operands operands, Operands::Make(op, {"D", "Y"}));
  const In rate = op.in("LearningRate"), n = op.in("N");
  return MakeUpdate(op, operands.param, operands.master,
                    [=](const KernelContext& ctx, auto zero) -> absl::Status {
                      using T = decltype(zero);
                      WEFT_ASSIGN_OR_RETURN(const Updated<T> updated, operands.template At<T>(ctx));
                      WEFT_ASSIGN_OR_RETURN(T* const d, operands.template StateAt<T>(ctx, 0));
                      WEFT_ASSIGN_OR_RETURN(T* const y, operands.template StateAt<T>(ctx, 1));
                      WEFT_RETURN_IF_ERROR(CheckSize("LearningRate", rate(ctx), 1));
                      WEFT_RETURN_IF_ERROR(CheckSize("N", n(ctx), 1));
                      return ForArithmeticType("input N", n(ctx), [&](auto tag) {
                        using N = typename decltype(tag)::type;
                        return ForEach(ctx, operands.param.in(ctx).size(),
                                       AsgdElement<T, N>{updated, rate.template data<T>(ctx),
                                                         n.template data<N>(ctx), d, y});
                      });
                    });
}

absl::StatusOr<Kernel> Rprop(OpKernel op) {
  WEFT_ASSIGN_OR_RETURN(const Operands operands, Operands::Make(op, {"Prev", "LearningRate"}));
  const In etas = op.in("Etas"), range = op.in("LearningRateRange");
  return MakeUpdate(
      op, operands.param, operands.master,
      [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const Updated<T> updated, operands.template At<T>(ctx));
        WEFT_ASSIGN_OR_RETURN(T* const prev, operands.template StateAt<T>(ctx, 0));
        WEFT_ASSIGN_OR_RETURN(T* const rates, operands.template StateAt<T>(ctx, 1));
        WEFT_RETURN_IF_ERROR(CheckSize("Etas", etas(ctx), 2));
        WEFT_RETURN_IF_ERROR(CheckSize("LearningRateRange", range(ctx), 2));
        WEFT_RETURN_IF_ERROR(CheckDType("LearningRateRange", range(ctx), etas(ctx).dtype()));
        return ForFloatType("input Etas", etas(ctx), [&](auto tag) {
          using N = typename decltype(tag)::type;
          return ForEach(ctx, operands.param.in(ctx).size(),
                         RpropElement<T, N>{updated, etas.template data<N>(ctx),
                                            range.template data<N>(ctx), prev, rates});
        });
      });
}

// States 2 to 4 are the powers.
template <typename F>
absl::StatusOr<Kernel> ByPowers(OpKernel op, const Operands& operands, const F& f) {
  const In rate = op.in("LearningRate");
  return MakeUpdate(
      op, operands.param, operands.master,
      [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const Updated<T> updated, operands.template At<T>(ctx));
        WEFT_ASSIGN_OR_RETURN(T* const m1, operands.template StateAt<T>(ctx, 0));
        WEFT_ASSIGN_OR_RETURN(T* const m2, operands.template StateAt<T>(ctx, 1));
        WEFT_RETURN_IF_ERROR(CheckSize("LearningRate", rate(ctx), 1));
        const int64_t size = operands.param.in(ctx).size();
        const int64_t num_powers = operands.states[2].in(ctx).size() == 1 ? 1 : size;
        PowersOf<T> powers{};
        for (int k = 0; k < 3; ++k) {
          const State& power = operands.states[2 + k];
          WEFT_RETURN_IF_ERROR(CheckSize(power.slot, power.in(ctx), num_powers));
          powers.values[k] = power.out.template data<T>(ctx);
          powers.stride[k] = num_powers == 1 ? 0 : 1;
        }
        WEFT_RETURN_IF_ERROR(ForEach(
            ctx, size, StepByPowers<T, F>{f, updated, rate.template data<T>(ctx), powers, m1, m2}));
        return ForEach(ctx, num_powers, AdvancePowers<T, F>{f, powers});
      });
}

absl::StatusOr<Kernel> Nadam(OpKernel op) {
  WEFT_ASSIGN_OR_RETURN(
      const Operands operands,
      Operands::Make(op, {"Moment1", "Moment2", "Beta2Pow", "MomentumDecayPow", "MuProduct"}));
  const NadamPowers powers{formulas::Nadam(op.attrs())};
  return ByPowers(std::move(op), operands, powers);
}

absl::StatusOr<Kernel> Radam(OpKernel op) {
  WEFT_ASSIGN_OR_RETURN(const Operands operands,
                        Operands::Make(op, {"Moment1", "Moment2", "Beta1Pow", "Beta2Pow", "Rho"}));
  const RadamPowers powers{formulas::Radam(op.attrs())};
  return ByPowers(std::move(op), operands, powers);
}

}  // namespace

void AddGpuPaddle3OptimizerKernels(KernelTable* table) {
  table->Add("asgd", Asgd);
  table->Add("nadam", Nadam);
  table->Add("radam", Radam);
  table->Add("rprop", Rprop);
}

}  // namespace weft
