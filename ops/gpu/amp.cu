// Loss scaling of mixed-precision training.
#include <cmath>
#include <cstdint>

#include "base/status_macros.h"
#include "ops/formulas/loss_scaling.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Notes an element that is not finite. Every thread that writes writes the same.
template <typename T>
struct FindInfinite {
  const T* x;
  bool* found;
  WEFT_DEVICE void operator()(int64_t i) const {
    if (!std::isfinite(x[i])) *found = true;
  }
};

template <typename T, typename Scale>
struct Unscale {
  const T* x;
  const Scale* scale;
  const bool* found;
  T* out;
  WEFT_DEVICE void operator()(int64_t i) const {
    out[i] = x[i] * (*found ? T(0) : 1 / static_cast<T>(*scale));
  }
};

// Out = X / Scale. FoundInfinite: whether an element of any X is not finite. As in Paddle's CPU
// kernel, Out is 0 X from the first such tensor on.
absl::StatusOr<Kernel> CheckFiniteAndUnscale(OpKernel op) {
  const In x = op.in("X"), scale = op.in("Scale");
  const Out out = op.out("Out"), found = op.out("FoundInfinite");
  return op.InPlace(out, x).Supports(Floats(x)).Make([=](const KernelContext& ctx) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckSize("Scale", scale(ctx), 1));
    bool* const is_found = found.data<bool>(ctx);
    WEFT_RETURN_IF_ERROR(Clear(ctx, is_found, sizeof(bool)));
    return ForFloatType("input Scale", scale(ctx), [&](auto scale_tag) -> absl::Status {
      using Scale = typename decltype(scale_tag)::type;
      for (int k = 0; k < x.count(); ++k) {
        WEFT_RETURN_IF_ERROR(ForFloatType("input X", x(ctx, k), [&](auto tag) -> absl::Status {
          using T = typename decltype(tag)::type;
          const T* const from = x.data<T>(ctx, k);
          const int64_t size = x(ctx, k).size();
          WEFT_RETURN_IF_ERROR(ForEach(ctx, size, FindInfinite<T>{from, is_found}));
          return ForEach(
              ctx, size,
              Unscale<T, Scale>{from, scale.data<Scale>(ctx), is_found, out.data<T>(ctx, k)});
        }));
      }
      return absl::OkStatus();
    });
  });
}

template <typename T>
struct KeepIfFinite {
  const T* x;
  const bool* found;
  T* out;
  WEFT_DEVICE void operator()(int64_t i) const { out[i] = *found ? T(0) : x[i]; }
};

struct UpdateScale {
  formulas::LossScaling scaling;
  const bool *found, *stop;  // stop may be null
  const float* scale;
  const int32_t *good, *bad;
  float* new_scale;
  int32_t *new_good, *new_bad;
  WEFT_DEVICE void operator()(int64_t) const {
    float value = *scale;
    int32_t num_good = *good, num_bad = *bad;
    if (stop == nullptr || !*stop) scaling(*found, value, num_good, num_bad);
    *new_scale = value;
    *new_good = num_good;
    *new_bad = num_bad;
  }
};

struct KeepScale {
  UpdateScale update;
  WEFT_DEVICE void operator()(int64_t) const {
    *update.new_scale = *update.scale;
    *update.new_good = *update.good;
    *update.new_bad = *update.bad;
  }
};

// After a step with gradients that are not finite, Out = 0, so that they have no effect. The scale
// changes by formulas::LossScaling.
absl::StatusOr<Kernel> UpdateLossScaling(OpKernel op) {
  const In x = op.in("X"), found = op.in("FoundInfinite"), scale = op.in("PrevLossScaling");
  const In good = op.in("InGoodSteps"), bad = op.in("InBadSteps"), stop = op.in("StopUpdate");
  const Out out = op.out("Out"), new_scale = op.out("LossScaling");
  const Out new_good = op.out("OutGoodSteps"), new_bad = op.out("OutBadSteps");
  const formulas::LossScaling scaling(op.attrs());
  const bool never = op.attrs().Bool("stop_update");
  op.InPlace(out, x).InPlace(new_scale, scale).InPlace(new_good, good).InPlace(new_bad, bad);
  return op.Supports(Floats(x)).Make([=](const KernelContext& ctx) -> absl::Status {
    for (const In& one : {found, scale, good, bad}) {
      WEFT_RETURN_IF_ERROR(
          CheckSize("FoundInfinite, PrevLossScaling, InGoodSteps, InBadSteps", one(ctx), 1));
    }
    const bool* const is_found = found.data<bool>(ctx);
    for (int k = 0; k < x.count(); ++k) {
      WEFT_RETURN_IF_ERROR(ForFloatType("input X", x(ctx, k), [&](auto tag) {
        using T = typename decltype(tag)::type;
        return ForEach(ctx, x(ctx, k).size(),
                       KeepIfFinite<T>{x.data<T>(ctx, k), is_found, out.data<T>(ctx, k)});
      }));
    }
    const UpdateScale update{scaling,
                             is_found,
                             stop.data_or_null<bool>(ctx),
                             scale.data<float>(ctx),
                             good.data<int32_t>(ctx),
                             bad.data<int32_t>(ctx),
                             new_scale.data<float>(ctx),
                             new_good.data<int32_t>(ctx),
                             new_bad.data<int32_t>(ctx)};
    return never ? ForEach(ctx, 1, KeepScale{update}) : ForEach(ctx, 1, update);
  });
}

}  // namespace

void AddGpuAmpKernels(KernelTable* table) {
  table->Add("check_finite_and_unscale", CheckFiniteAndUnscale);
  table->Add("update_loss_scaling", UpdateLossScaling);
}

}  // namespace weft
