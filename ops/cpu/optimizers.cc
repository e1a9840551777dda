// Updates of a parameter p by its gradient g without bias correction, by the formulas of
// ops/formulas/update.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/cpu/random_engine.h"
#include "ops/cpu/update.h"
#include "ops/formulas/update.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

// The update f(lr, p, g, states...).
template <typename F, size_t... k>
absl::StatusOr<Kernel> Make(const KernelSpec& spec, GradKind kind, const UpdateSlots& slots, F f,
                            std::index_sequence<k...>) {
  return MakeAppliedUpdate(spec, kind, slots, [=](auto& u) {
    using T = TypeOf<decltype(u)>;
    const std::array<T*, sizeof...(k)> states = {u.state(k)...};
    u.Apply(
        [=, lr = u.lr()](T& p, T g, [[maybe_unused]] int64_t i) { f(lr, p, g, states[k][i]...); });
  });
}
template <typename F>
absl::StatusOr<Kernel> Make(const KernelSpec& spec, GradKind kind, const F& f) {
  const UpdateSlots slots{{F::kStates.begin(), F::kStates.end()}};
  return Make(spec, kind, slots, f, std::make_index_sequence<F::kStates.size()>());
}

template <typename F>
absl::StatusOr<Kernel> Update(const KernelSpec& spec, GradKind kind) {
  return Make(spec, kind, F(spec.attrs));
}

size_t NumParams(const KernelSpec& spec) {
  return spec.Input("Param") < 0 ? 0 : spec.inputs.at("Param").count;
}

// Paddle's CPU kernel before Paddle 2 overwrites the mean of squared updates before it takes the
// update from it.
absl::StatusOr<Kernel> Adadelta(const KernelSpec& spec, GradKind kind) {
  formulas::Adadelta f(spec.attrs);
  f.takes_new_update = spec.paddle_cpu_quirks && !spec.attrs.Does("keeps its update");
  return Make(spec, kind, f);
}

// --- momentum ------------------------------------------------------------------------------------

// Paddle's CPU kernel for tensors ignores rescale_grad, and that for rows loses some of them.
absl::StatusOr<Kernel> Momentum(const KernelSpec& spec, GradKind kind) {
  formulas::Momentum f(spec.attrs);
  WEFT_ASSIGN_OR_RETURN(f.l2_decay, formulas::L2Decay(spec.attrs.String("regularization_method"),
                                                      spec.attrs.Float("regularization_coeff")));
  if (spec.paddle_cpu_quirks) {
    if (kind == GradKind::kDense) f.rescale_grad = 1;
    if (kind == GradKind::kRowsAmongAll) kind = GradKind::kSearchedRows;
  }
  return Make(spec, kind, f);
}

// Paddle's CPU kernel also ignores rescale_grad.
absl::StatusOr<Kernel> MergedMomentum(const KernelSpec& spec) {
  const std::vector<std::string>& methods = spec.attrs.Strings("regularization_method");
  const std::vector<double> coefficients = spec.attrs.Floats("regularization_coeff");
  const size_t count = NumParams(spec);
  std::vector<double> l2_decays(count, 0);
  if (!methods.empty()) {
    // Ops that are merged have one each, and stay apart.
    if (methods.size() != count || coefficients.size() != count) {
      return absl::InvalidArgumentError(
          absl::StrCat("attributes regularization_method and regularization_coeff: expected one "
                       "for each of ",
                       count, " parameters, found ", methods.size(), " and ", coefficients.size()));
    }
    for (size_t i = 0; i < count; ++i) {
      WEFT_ASSIGN_OR_RETURN(l2_decays[i], formulas::L2Decay(methods[i], coefficients[i]));
    }
  }
  formulas::Momentum shared(spec.attrs);
  if (spec.paddle_cpu_quirks) shared.rescale_grad = 1;
  return MakeUpdate(spec, GradKind::kDense, {{"Velocity"}}, [=](auto& u) {
    using T = TypeOf<decltype(u)>;
    formulas::Momentum f = shared;
    f.l2_decay = l2_decays[u.index()];
    T* v = u.state(0);
    u.Apply([=, lr = u.lr()](T& p, T g, int64_t i) { f(lr, p, g, v[i]); });
  });
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
    u.Apply([=](T& p, T grad, int64_t i) {
      const T g = static_cast<T>(rescale_grad) * grad + static_cast<T>(decay) * p;
      v[i] = mu * v[i] + r * g;
      p -= v[i];
    });
  });
}

// --- dpsgd ---------------------------------------------------------------------------------------

// p -= lr (g / max(1, ‖g‖ / clip) + noise / batch_size), with one noise for all elements, of the
// normal distribution of deviation sigma. A nonzero seed gives Paddle's noise, the same in every
// step. Abadi et al., "Deep Learning with Differential Privacy" (2016).
absl::StatusOr<Kernel> Dpsgd(OpKernel op) {
  const In param = op.in("Param"), grad = op.in("Grad"), rate = op.in("LearningRate");
  const Out out = op.out("ParamOut");
  const double clip = op.attrs().Float("clip"), batch_size = op.attrs().Float("batch_size");
  const double sigma = op.attrs().Float("sigma");
  const int64_t seed = op.attrs().Int("seed");
  op.InPlace(out, param);
  return op.Make(Floats(param), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    std::mt19937_64 own;
    WEFT_ASSIGN_OR_RETURN(std::mt19937_64 * engine,
                          EngineOf(seed, &RandomState::noise, ctx.random, &own));
    std::minstd_rand generator(
        static_cast<uint32_t>(seed != 0 ? static_cast<uint64_t>(seed) : (*engine)()));
    // Marsaglia's polar method.
    std::uniform_real_distribution<T> uniform(0, 1);
    T x = 0, square = 0;
    do {
      x = 2 * uniform(generator) - 1;
      const T y = 2 * uniform(generator) - 1;
      square = x * x + y * y;
    } while (square >= 1 || square == 0);
    const T noise = x * std::sqrt(-2 * std::log(square) / square) * static_cast<T>(sigma);
    WEFT_ASSIGN_OR_RETURN(const double lr, ScalarValue("LearningRate", rate(ctx)));
    const T *const from = param.data<T>(ctx), *const g = grad.data<T>(ctx);
    T* const to = out.data<T>(ctx);
    const double norm =
        std::sqrt(SumOf<T>(grad(ctx).size(), [=](int64_t k) { return double{g[k]} * g[k]; }));
    const T scale = static_cast<T>(std::max(1.0, norm / clip));
    const T shift = noise / static_cast<T>(batch_size), step = static_cast<T>(lr);
    for (int64_t k = 0; k < param(ctx).size(); ++k) to[k] = from[k] - step * (g[k] / scale + shift);
    return absl::OkStatus();
  });
}

// --- rmsprop -------------------------------------------------------------------------------------

absl::StatusOr<Kernel> Rmsprop(const KernelSpec& spec, GradKind kind) {
  if (spec.attrs.Bool("centered")) {
    WEFT_RETURN_IF_ERROR(RequiredInput(spec, "MeanGrad").status());
    return Update<formulas::CenteredRmsprop>(spec, kind);
  }
  // Passes the third one on.
  return Make(spec, kind, {{"MeanSquare", "Moment", "MeanGrad"}}, formulas::Rmsprop(spec.attrs),
              std::make_index_sequence<2>());
}

}  // namespace

void AddOptimizerKernels(KernelTable* table) {
  AddUpdate(table, "adadelta", Adadelta);
  AddUpdate(table, "adagrad", Update<formulas::Adagrad>, GradKind::kRows);
  AddUpdate(table, "decayed_adagrad", Update<formulas::DecayedAdagrad>);
  AddUpdate(table, "ftrl", Update<formulas::Ftrl>, GradKind::kRows);
  AddUpdate(table, "lars_momentum", LarsMomentum);
  AddUpdate(table, "momentum", Momentum, GradKind::kRowsAmongAll);
  AddUpdate(table, "rmsprop", Rmsprop, GradKind::kRowsAmongAll);
  AddUpdate(table, "sgd", Update<formulas::Sgd>, GradKind::kRows);
  table->Add("dpsgd", Dpsgd);
  table->Add("merged_momentum", MergedMomentum);
}

}  // namespace weft
