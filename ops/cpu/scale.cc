#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = scale X + bias, or scale (X + bias) where bias_after_scale is not set. Possibly in place.
absl::StatusOr<Kernel> Scale(const KernelSpec& spec) {
  WEFT_RETURN_IF_ERROR(NoInputs(spec, {"ScaleTensor"}));
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  const double scale_attr = spec.attrs.Float("scale"), bias_attr = spec.attrs.Float("bias");
  const bool bias_after_scale = spec.attrs.Bool("bias_after_scale");
  return Kernel([=](const KernelContext& ctx) {
    const Tensor& x = *ctx.in(x_index);
    Tensor* out = ctx.out(out_index);
    return ForNumberType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T scale = static_cast<T>(scale_attr), bias = static_cast<T>(bias_attr);
      out->Resize(x.dtype(), x.dims());
      const T* from = x.data<T>();
      T* to = out->data<T>();
      if (bias_after_scale) {
        for (int64_t i = 0; i < x.size(); ++i) to[i] = scale * from[i] + bias;
      } else {
        for (int64_t i = 0; i < x.size(); ++i) to[i] = scale * (from[i] + bias);
      }
      return absl::OkStatus();
    });
  });
}

// Out = X + step, of one element, possibly in place: counters of steps. Integers wrap around.
absl::StatusOr<Kernel> Increment(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  const double step = spec.attrs.Float("step");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    Tensor* out = ctx.out(out_index);
    WEFT_RETURN_IF_ERROR(CheckSize("X", x, 1));
    return ForNumberType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      out->Resize(x.dtype(), x.dims());
      *out->data<T>() = static_cast<T>(Wrapping(*x.data<T>()) + Wrapping(Saturated<T>(step)));
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddScaleKernels(KernelTable* table) {
  table->Add("increment", Framed(Increment, WorksInPlace::kYes));
  table->Add("scale", Framed(Scale, WorksInPlace::kYes));
}

}  // namespace weft
