// Clipping: of every element, and of a whole tensor by its norm.
#include "ops/formulas/clip.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = X, limited to [min, max]. NaN in, NaN out.
absl::StatusOr<Kernel> Clip(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double min = op.attrs().Float("min"), max = op.attrs().Float("max");
  if (!(min <= max)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected min of at most max, found min ", min, " and max ", max));
  }
  return op.InPlace().Pointwise().Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    std::transform(from, from + x(ctx).size(), out.data<T>(ctx),
                   formulas::Clip<T>{Saturated<T>(min), Saturated<T>(max)});
  });
}

// Out = X, scaled down to the norm max_norm if its norm is larger.
absl::StatusOr<Kernel> ClipByNorm(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double max_norm = op.attrs().Float("max_norm");
  op.Supports(Floats(x));
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>(ctx);
    const double norm = std::sqrt(SumOfSquares(from, x(ctx).size()));
    const T factor = norm <= max_norm ? T(1) : static_cast<T>(max_norm / norm);
    std::transform(from, from + x(ctx).size(), out.data<T>(ctx),
                   [=](T value) { return factor * value; });
  });
}

// X@GRAD = Out@GRAD if X is strictly between min and max, else 0.
absl::StatusOr<Kernel> ClipGrad(OpKernel op) {
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const formulas::ClipGrad gradient{op.attrs().Float("min"), op.attrs().Float("max")};
  return op.InPlace(dx, dout).InPlace(dx, x).MakeElementwise(Floats(x), dx, gradient, x, dout);
}

}  // namespace

void AddClipKernels(KernelTable* table) {
  table->Add("clip", Clip, ClipGrad);
  table->Add("clip_by_norm", ClipByNorm);
}

}  // namespace weft
