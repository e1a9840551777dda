// Optimizers that Paddle has since version 3, by the formulas of ops/formulas/paddle3_updates.h.
#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/cpu/update.h"
#include "ops/formulas/paddle3_updates.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

absl::StatusOr<Kernel> Asgd(const KernelSpec& spec, GradKind kind) {
  return MakeUpdate(spec, kind, {{"D", "Y"}, {}, {"N"}}, [](auto& u) -> absl::Status {
    using T = TypeOf<decltype(u)>;
    WEFT_RETURN_IF_ERROR(CheckSize("N", u.constant(0), 1));
    double n = 0;  // Paddle counts in integers
    WEFT_RETURN_IF_ERROR(ForArithmeticType("input N", u.constant(0), [&](auto tag) {
      n = static_cast<double>(*u.constant(0).template data<typename decltype(tag)::type>());
      return absl::OkStatus();
    }));
    if (!(n > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("input N: expected a number above 0, found ", n));
    }
    const formulas::AsgdStep<T> f{u.lr(), static_cast<T>(n)};
    T *d = u.state(0), *y = u.state(1);
    u.Apply([=](T& p, T g, int64_t i) { f(p, g, d[i], y[i]); });
    return absl::OkStatus();
  });
}

using Powers = std::array<double, 3>;

// Steps by the moments, and by powers that make_step advances and makes a step of. Paddle keeps a
// power for each element of the parameter, all of them equal; where they differ, each stretch of
// equal ones has a step of its own.
template <typename U, typename MakeStep>
void ApplyByPowers(U& u, const MakeStep& make_step) {
  using T = TypeOf<U>;
  Powers powers{};
  const int num = static_cast<int>(powers.size());
  T *m1 = u.state(0), *m2 = u.state(1);
  if (u.num_scalars() == num) {
    for (int k = 0; k < num; ++k) powers[k] = u.scalar(k);
    const auto f = make_step(&powers);
    u.Apply([=](T& p, T g, int64_t i) { f(p, g, m1[i], m2[i]); });
    for (int k = 0; k < num; ++k) u.SetScalar(k, powers[k]);
    return;
  }
  const std::array<T*, 3> of_elements = {u.state(2), u.state(3), u.state(4)};
  u.ApplyToRuns([=](T* p, const T* g, int64_t begin, int64_t count, bool) {
    const int64_t end = begin + count;
    for (int64_t first = begin, last = begin; first < end; first = last) {
      const auto is_equal = [&](const T* of) { return of[last] == of[first]; };
      for (++last; last < end && absl::c_all_of(of_elements, is_equal);) ++last;
      Powers next{};
      for (int k = 0; k < num; ++k) next[k] = of_elements[k][first];
      const auto f = make_step(&next);
      T* const of_run = p + (first - begin);
      const T* const grad = g + (first - begin);
      ForEach<T>(last - first,
                 [=](int64_t k) { f(of_run[k], grad[k], m1[first + k], m2[first + k]); });
      for (int k = 0; k < num; ++k) {
        std::fill(of_elements[k] + first, of_elements[k] + last, static_cast<T>(next[k]));
      }
    }
  });
}

absl::StatusOr<Kernel> Nadam(const KernelSpec& spec, GradKind kind) {
  const UpdateSlots slots{
      {"Moment1", "Moment2"}, {}, {}, {"Beta2Pow", "MomentumDecayPow", "MuProduct"}};
  return MakeUpdate(spec, kind, slots, [nadam = formulas::Nadam(spec.attrs)](auto& u) {
    using T = TypeOf<decltype(u)>;
    ApplyByPowers(u, [&nadam, lr = u.lr()](Powers* powers) {
      auto& [b2, decay_pow, product] = *powers;
      b2 *= nadam.beta2;
      decay_pow *= formulas::Nadam::kDecay;
      const auto step = nadam.template At<T>(lr, b2, decay_pow, product);
      product *= nadam.Mu(decay_pow);
      return step;
    });
  });
}

absl::StatusOr<Kernel> Radam(const KernelSpec& spec, GradKind kind) {
  const UpdateSlots slots{{"Moment1", "Moment2"}, {}, {}, {"Beta1Pow", "Beta2Pow", "Rho"}};
  return MakeUpdate(spec, kind, slots, [radam = formulas::Radam(spec.attrs)](auto& u) {
    using T = TypeOf<decltype(u)>;
    ApplyByPowers(u, [&radam, lr = u.lr()](Powers* powers) {
      auto& [b1, b2, rho] = *powers;
      b1 *= radam.beta1;
      b2 *= radam.beta2;
      rho = radam.NextRho(rho, b2);
      return radam.template At<T>(lr, b1, b2, rho);
    });
  });
}

// Two numbers: 0 and 1.
absl::StatusOr<std::array<double, 2>> ReadPair(absl::string_view slot, const Tensor& tensor) {
  WEFT_RETURN_IF_ERROR(CheckSize(slot, tensor, 2));
  std::array<double, 2> pair{};
  WEFT_RETURN_IF_ERROR(ForFloatType(slot, tensor, [&](auto tag) {
    const auto* const numbers = tensor.data<typename decltype(tag)::type>();
    pair = {static_cast<double>(numbers[0]), static_cast<double>(numbers[1])};
    return absl::OkStatus();
  }));
  return pair;
}

absl::StatusOr<Kernel> Rprop(const KernelSpec& spec, GradKind kind) {
  return MakeUpdate(
      spec, kind, {{"Prev", "LearningRate"}, {}, {"Etas", "LearningRateRange"}},
      [](auto& u) -> absl::Status {
        using T = TypeOf<decltype(u)>;
        WEFT_ASSIGN_OR_RETURN(const auto etas, ReadPair("Etas", u.constant(0)));
        WEFT_ASSIGN_OR_RETURN(const auto range, ReadPair("LearningRateRange", u.constant(1)));
        const formulas::RpropStep<T> f{static_cast<T>(etas[0]), static_cast<T>(etas[1]),
                                       static_cast<T>(range[0]), static_cast<T>(range[1])};
        T *prev = u.state(0), *rate = u.state(1);
        u.Apply([=](T& p, T g, int64_t i) { f(p, g, prev[i], rate[i]); });
        return absl::OkStatus();
      });
}

}  // namespace

void AddPaddle3OptimizerKernels(KernelTable* table) {
  AddUpdate(table, "asgd", Asgd);
  AddUpdate(table, "nadam", Nadam);
  AddUpdate(table, "radam", Radam);
  AddUpdate(table, "rprop", Rprop);
}

}  // namespace weft
