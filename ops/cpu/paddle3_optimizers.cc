// Optimizers that Paddle has since version 3, by the formulas of ops/formulas/paddle3_updates.h.
#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/cpu/update.h"
#include "ops/formulas/paddle3_updates.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

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

absl::StatusOr<Kernel> Nadam(const KernelSpec& spec, GradKind kind) {
  const UpdateSlots slots{{"Moment1", "Moment2"}, {"Beta2Pow", "MomentumDecayPow", "MuProduct"}};
  return MakeUpdate(spec, kind, slots, [nadam = formulas::Nadam(spec.attrs)](auto& u) {
    using T = TypeOf<decltype(u)>;
    const double b2 = u.scalar(0) * nadam.beta2;
    const double decay_pow = u.scalar(1) * formulas::Nadam::kDecay, product = u.scalar(2);
    const auto f = nadam.At<T>(u.lr(), b2, decay_pow, product);
    T *m1 = u.state(0), *m2 = u.state(1);
    u.Apply([=](T& p, T g, int64_t i) { f(p, g, m1[i], m2[i]); });
    u.SetScalar(0, b2);
    u.SetScalar(1, decay_pow);
    u.SetScalar(2, product * nadam.Mu(decay_pow));
  });
}

absl::StatusOr<Kernel> Radam(const KernelSpec& spec, GradKind kind) {
  const UpdateSlots slots{{"Moment1", "Moment2"}, {"Beta1Pow", "Beta2Pow", "Rho"}};
  return MakeUpdate(spec, kind, slots, [radam = formulas::Radam(spec.attrs)](auto& u) {
    using T = TypeOf<decltype(u)>;
    const double b1 = u.scalar(0) * radam.beta1, b2 = u.scalar(1) * radam.beta2;
    const double rho = radam.NextRho(u.scalar(2), b2);
    const auto f = radam.At<T>(u.lr(), b1, b2, rho);
    T *m1 = u.state(0), *m2 = u.state(1);
    u.Apply([=](T& p, T g, int64_t i) { f(p, g, m1[i], m2[i]); });
    u.SetScalar(0, b1);
    u.SetScalar(1, b2);
    u.SetScalar(2, rho);
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
