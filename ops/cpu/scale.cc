#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = scale X + bias, or scale (X + bias) without bias_after_scale. Integers wrap around.
absl::StatusOr<Kernel> Scale(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double factor = spec.attrs.Float("scale"), offset = spec.attrs.Float("bias");
  const bool bias_after_scale = spec.attrs.Bool("bias_after_scale");
  return op.InPlace().Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const auto scale = Wrapping(Saturated<T>(factor)), bias = Wrapping(Saturated<T>(offset));
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    const int64_t n = x(ctx).size();
    if (bias_after_scale) {
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(scale * Wrapping(from[i]) + bias);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(scale * (Wrapping(from[i]) + bias));
    }
  });
}

// Out = X + step, for one element: step counters. Integers wrap around.
absl::StatusOr<Kernel> Increment(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double step = spec.attrs.Float("step");
  return op.InPlace().Make(
      FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_RETURN_IF_ERROR(CheckSize("X", x(ctx), 1));
        *out.data<T>(ctx) =
            static_cast<T>(Wrapping(*x.data<T>(ctx)) + Wrapping(Saturated<T>(step)));
        return absl::OkStatus();
      });
}

}  // namespace

void AddScaleKernels(KernelTable* table) {
  table->Add("increment", Increment);
  table->Add("scale", Scale);
}

}  // namespace weft
