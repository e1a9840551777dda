// ReLU with a random slope for negative elements. Every rank draws its own.
#include <cstdint>
#include <random>

#include "base/status_macros.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/random_engine.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = X Noise: 1 where X >= 0, else drawn from [lower, upper), in a test the middle of that.
absl::StatusOr<Kernel> Rrelu(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out"), noise = op.out("Noise");
  const double lower = spec.attrs.Float("lower"), upper = spec.attrs.Float("upper");
  const bool is_test = spec.attrs.Bool("is_test");
  if (!(lower >= 0 && lower <= upper && upper <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attributes lower and upper: expected 0 <= ", lower, " <= ", upper, " <= 1"));
  }
  return op.InPlace(out, x).Make(
      Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        std::mt19937_64 unused, *engine = &unused;
        if (!is_test) {
          WEFT_ASSIGN_OR_RETURN(engine,
                                EngineOf(/*seed=*/0, &RandomState::dropout, ctx.random, &unused));
        }
        std::uniform_real_distribution<double> draw(lower, upper);
        const T* from = x.data<T>(ctx);
        T *to = out.data<T>(ctx), *factors = noise.data_or_null<T>(ctx);
        for (int64_t i = 0; i < x(ctx).size(); ++i) {
          const double slope = from[i] >= 0 ? 1 : is_test ? (lower + upper) / 2 : draw(*engine);
          to[i] = static_cast<T>(from[i] * slope);
          if (factors != nullptr) factors[i] = static_cast<T>(slope);
        }
        return absl::OkStatus();
      });
}

// X@GRAD = Out@GRAD Noise.
absl::StatusOr<Kernel> RreluGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In noise = op.in("Noise"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.InPlace().Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *factors = noise.data<T>(ctx), *from = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    for (int64_t i = 0; i < dout(ctx).size(); ++i) to[i] = from[i] * factors[i];
  });
}

}  // namespace

void AddRreluKernels(KernelTable* table) {
  table->Add("rrelu", Rrelu);
  table->Add("rrelu_grad", RreluGrad);
}

}  // namespace weft
