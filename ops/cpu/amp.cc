// Loss scaling of mixed-precision training. The loss is scaled up, so that small gradients do not
// vanish in half precision, and gradients are scaled back. A gradient that is not finite means that
// the scale was too large.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/cpu/families.h"
#include "ops/formulas/loss_scaling.h"
#include "ops/op_kernel.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

// Calls run(x, out, T()) for every pair of X and Out, T being their element type.
template <typename Run>
absl::Status ForEachTensor(const KernelContext& ctx, In x, Out out, Run run) {
  for (int i = 0; i < x.count(); ++i) {
    WEFT_RETURN_IF_ERROR(ForFloatType("input X", x(ctx, i), [&](auto tag) {
      using T = typename decltype(tag)::type;
      run(x(ctx, i), out(ctx, i).template data<T>(), T());
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

// Out = X / Scale. FoundInfinite: whether an element of any X is not finite. As in Paddle's CPU
// kernel, Out is 0 X from the first such tensor on.
absl::StatusOr<Kernel> CheckFiniteAndUnscale(OpKernel op) {
  const In x = op.in("X"), scale = op.in("Scale");
  const Out out = op.out("Out"), found = op.out("FoundInfinite");
  return op.InPlace(out, x).Supports(Floats(x)).Make([=](const KernelContext& ctx) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const double divisor, ScalarValue("Scale", scale(ctx)));
    bool found_infinite = false;
    WEFT_RETURN_IF_ERROR(ForEachTensor(ctx, x, out, [&](const Tensor& in, auto* to, auto zero) {
      using T = decltype(zero);
      const T* from = in.data<T>();
      for (int64_t i = 0; i < in.size() && !found_infinite; ++i) {
        found_infinite = !std::isfinite(from[i]);
      }
      const T factor = found_infinite ? T(0) : 1 / static_cast<T>(divisor);
      ForEach<T>(in.size(), [=](int64_t i) { to[i] = from[i] * factor; });
    }));
    *found.data<bool>(ctx) = found_infinite;
    return absl::OkStatus();
  });
}

// After a step with gradients that are not finite, Out = 0, so that they have no effect. The scale
// changes by formulas::LossScaling.
absl::StatusOr<Kernel> UpdateLossScaling(OpKernel op) {
  const In x = op.in("X"), found = op.in("FoundInfinite"), scale = op.in("PrevLossScaling");
  const In good = op.in("InGoodSteps"), bad = op.in("InBadSteps"), stop = op.in("StopUpdate");
  const Out out = op.out("Out"), new_scale = op.out("LossScaling");
  const Out new_good = op.out("OutGoodSteps"), new_bad = op.out("OutBadSteps");
  const formulas::LossScaling scaling(op.attrs());
  const bool never = op.attrs().Bool("stop_update");
  op.InPlace(out, x);
  return op.Supports(Floats(x)).Make([=](const KernelContext& ctx) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const bool found_infinite, OneValue<bool>("FoundInfinite", found(ctx)));
    bool stops = never;
    if (const Tensor* flag = stop.get(ctx)) {
      WEFT_ASSIGN_OR_RETURN(stops, OneValue<bool>("StopUpdate", *flag));
    }
    WEFT_ASSIGN_OR_RETURN(int32_t num_good, OneValue<int32_t>("InGoodSteps", good(ctx)));
    WEFT_ASSIGN_OR_RETURN(int32_t num_bad, OneValue<int32_t>("InBadSteps", bad(ctx)));
    WEFT_ASSIGN_OR_RETURN(float value, OneValue<float>("PrevLossScaling", scale(ctx)));
    WEFT_RETURN_IF_ERROR(ForEachTensor(ctx, x, out, [&](const Tensor& in, auto* to, auto zero) {
      using T = decltype(zero);
      const T* from = in.data<T>();
      if (found_infinite) {
        std::fill_n(to, in.size(), T(0));
      } else if (from != to) {
        std::copy_n(from, in.size(), to);
      }
    }));
    if (!stops) scaling(found_infinite, value, num_good, num_bad);
    *new_scale.data<float>(ctx) = value;
    *new_good.data<int32_t>(ctx) = num_good;
    *new_bad.data<int32_t>(ctx) = num_bad;
    return absl::OkStatus();
  });
}

}  // namespace

void AddAmpKernels(KernelTable* table) {
  table->Add("check_finite_and_unscale", CheckFiniteAndUnscale);
  table->Add("update_loss_scaling", UpdateLossScaling);
}

}  // namespace weft
