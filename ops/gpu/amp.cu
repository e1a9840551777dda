// Loss scaling of mixed-precision training.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/status_macros.h"
#include "ops/formulas/loss_scaling.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/reduce_loops.h"
#include "ops/gpu/tensor_list.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

template <typename T>
struct Gradient {
  const T* x;
  T* out;
  int number;
};

// The first tensors are finite: as many as `finite` says.
struct FindInfinite {
  int* finite;
  bool* found;
  template <typename T>
  WEFT_DEVICE void operator()(const Gradient<T>& gradient, int64_t i) const {
    if (std::isfinite(gradient.x[i])) return;
    *found = true;  // every thread that writes writes the same
#ifdef __CUDACC__
    if (gradient.number < *finite) atomicMin(finite, gradient.number);
#else
    *finite = std::min(*finite, gradient.number);
#endif
  }
};

template <typename Scale>
struct Unscale {
  const Scale* scale;
  const int* finite;
  template <typename T>
  WEFT_DEVICE void operator()(const Gradient<T>& gradient, int64_t i) const {
    const T factor = gradient.number < *finite ? 1 / static_cast<T>(*scale) : T(0);
    gradient.out[i] = gradient.x[i] * factor;
  }
};

struct KeepIfFinite {
  const bool* found;
  template <typename T>
  WEFT_DEVICE void operator()(const Gradient<T>& gradient, int64_t i) const {
    gradient.out[i] = *found ? T(0) : gradient.x[i];
  }
};

// f(gradient, i) for the elements of all X, of which those of one type are together in launches.
template <typename F>
absl::Status ForGradients(const KernelContext& ctx, const In& x, const Out& out, const F& f) {
  TensorList<Gradient<float>, F> floats(ctx, f);
  TensorList<Gradient<double>, F> doubles(ctx, f);
  for (int k = 0; k < x.count(); ++k) {
    WEFT_RETURN_IF_ERROR(ForFloatType("input X", x(ctx, k), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const Gradient<T> gradient = {x.data<T>(ctx, k), out.data<T>(ctx, k), k};
      if constexpr (std::is_same_v<T, float>) {
        return floats.Add(gradient, x(ctx, k).size());
      } else {
        return doubles.Add(gradient, x(ctx, k).size());
      }
    }));
  }
  WEFT_RETURN_IF_ERROR(floats.Launch());
  return doubles.Launch();
}

// Out = X / Scale. FoundInfinite: whether an element of any X is not finite. As in Paddle's CPU
// kernel, Out is 0 X from the first such tensor on.
absl::StatusOr<Kernel> CheckFiniteAndUnscale(OpKernel op) {
  const In x = op.in("X"), scale = op.in("Scale");
  const Out out = op.out("Out"), found = op.out("FoundInfinite");
  return op.InPlace(out, x).Supports(Floats(x)).Make(
      [=, finite = Tensor()](const KernelContext& ctx) mutable -> absl::Status {
        WEFT_RETURN_IF_ERROR(CheckSize("Scale", scale(ctx), 1));
        bool* const is_found = found.data<bool>(ctx);
        ScratchLike(found(ctx), &finite)->Resize(DType::kInt32, {1});
        int* const num_finite = finite.data<int32_t>();
        WEFT_RETURN_IF_ERROR(Clear(ctx, is_found, sizeof(bool)));
        WEFT_RETURN_IF_ERROR(ForEach(ctx, 1, FillElement<int>{x.count(), num_finite}));
        WEFT_RETURN_IF_ERROR(ForGradients(ctx, x, out, FindInfinite{num_finite, is_found}));
        return ForFloatType("input Scale", scale(ctx), [&](auto tag) {
          using Scale = typename decltype(tag)::type;
          return ForGradients(ctx, x, out, Unscale<Scale>{scale.data<Scale>(ctx), num_finite});
        });
      });
}

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
    WEFT_RETURN_IF_ERROR(ForGradients(ctx, x, out, KeepIfFinite{is_found}));
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
