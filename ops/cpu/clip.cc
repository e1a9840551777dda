// Clipping: of every element, and of a whole tensor by its norm.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = X, limited to [min, max]. NaN in, NaN out.
absl::StatusOr<Kernel> Clip(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double min = spec.attrs.Float("min"), max = spec.attrs.Float("max");
  if (!(min <= max)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected min of at most max, found min ", min, " and max ", max));
  }
  return op.InPlace().Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T low = Saturated<T>(min), high = Saturated<T>(max);
    const T* from = x.data<T>(ctx);
    std::transform(from, from + x(ctx).size(), out.data<T>(ctx), [=](T value) {
      return value < low ? low : value > high ? high : value;
    });
  });
}

// Out = X, scaled down to the norm max_norm if its norm is larger.
absl::StatusOr<Kernel> ClipByNorm(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double max_norm = spec.attrs.Float("max_norm");
  op.Supports(Floats(x));
  if (!(max_norm > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute max_norm: expected more than 0, found ", max_norm));
  }
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    const double norm = std::sqrt(SumOfSquares(from, x(ctx).size()));
    const T factor = norm <= max_norm ? T(1) : static_cast<T>(max_norm / norm);
    std::transform(from, from + x(ctx).size(), out.data<T>(ctx),
                   [=](T value) { return factor * value; });
  });
}

// X@GRAD = Out@GRAD where X is strictly between min and max, 0 elsewhere.
absl::StatusOr<Kernel> ClipGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const double min = spec.attrs.Float("min"), max = spec.attrs.Float("max");
  return op.InPlace(dx, dout).InPlace(dx, x).Make(
      Floats(x), [=](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const T low = static_cast<T>(min), high = static_cast<T>(max);
        const T *xs = x.data<T>(ctx), *dys = dout.data<T>(ctx);
        T* to = dx.data<T>(ctx);
        for (int64_t i = 0; i < x(ctx).size(); ++i) {
          to[i] = xs[i] > low && xs[i] < high ? dys[i] : T(0);
        }
      });
}

}  // namespace

void AddClipKernels(KernelTable* table) {
  table->Add("clip", Clip);
  table->Add("clip_by_norm", ClipByNorm);
  table->Add("clip_grad", ClipGrad);
}

}  // namespace weft
