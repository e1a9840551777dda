// Clipping: of every element, and of a whole tensor by its norm.
#include <cmath>
#include <cstdint>

#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = X cut off below min and above max, possibly in place; not a number stays that.
absl::StatusOr<Kernel> Clip(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  const Number min(spec, "Min", "min"), max(spec, "Max", "max");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    Tensor* out = ctx.out(out_index);
    WEFT_ASSIGN_OR_RETURN(const double low_value, min.Value(ctx));
    WEFT_ASSIGN_OR_RETURN(const double high_value, max.Value(ctx));
    if (!(low_value <= high_value)) {
      return absl::InvalidArgumentError(absl::StrCat("expected min of at most max, found min ",
                                                     low_value, " and max ", high_value));
    }
    return ForNumberType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T low = Saturated<T>(low_value), high = Saturated<T>(high_value);
      out->Resize(x.dtype(), x.dims());
      const T* from = x.data<T>();
      T* to = out->data<T>();
      for (int64_t i = 0; i < x.size(); ++i) {
        to[i] = from[i] < low ? low : from[i] > high ? high : from[i];
      }
      return absl::OkStatus();
    });
  });
}

// Out = X, scaled to the norm max_norm where it has a larger one. Possibly in place.
absl::StatusOr<Kernel> ClipByNorm(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  const double max_norm = spec.attrs.Float("max_norm");
  if (!(max_norm > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute max_norm: expected more than 0, found ", max_norm));
  }
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    Tensor* out = ctx.out(out_index);
    return ForFloatType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const double norm = std::sqrt(SumOfSquares(x.data<T>(), x.size()));
      const T factor = norm <= max_norm ? T(1) : static_cast<T>(max_norm / norm);
      out->Resize(x.dtype(), x.dims());
      const T* from = x.data<T>();
      T* to = out->data<T>();
      for (int64_t i = 0; i < x.size(); ++i) to[i] = factor * from[i];
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddClipKernels(KernelTable* table) {
  table->Add("clip", Framed(Clip, WorksInPlace::kYes));
  table->Add("clip_by_norm", Framed(ClipByNorm, WorksInPlace::kYes));
}

}  // namespace weft
