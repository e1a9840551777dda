// Clipping: of every element, and of a whole tensor by its norm.
#include <cmath>
#include <cstdint>
#include <memory>

#include "base/status_macros.h"
#include "ops/formulas/clip.h"
#include "ops/formulas/reduction.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/reduce_loops.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = X, limited to [min, max].
absl::StatusOr<Kernel> Clip(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double min = op.attrs().Float("min"), max = op.attrs().Float("max");
  if (!(min <= max)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected min of at most max, found min ", min, " and max ", max));
  }
  return op.InPlace().Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const formulas::Clip<T> clip{Saturated<T>(min), Saturated<T>(max)};
    return ForEach(ctx, x(ctx).size(),
                   MapOne<T, formulas::Clip<T>>{clip, x.data<T>(ctx), out.data<T>(ctx)});
  });
}

absl::StatusOr<Kernel> ClipGrad(OpKernel op) {
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const formulas::ClipGrad gradient{op.attrs().Float("min"), op.attrs().Float("max")};
  return op.InPlace(dx, dout).InPlace(dx, x).Make(
      Floats(x), [=](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        return ForEach(ctx, x(ctx).size(),
                       MapTwo<T, formulas::ClipGrad>{gradient, x.data<T>(ctx), dout.data<T>(ctx),
                                                     dx.data<T>(ctx)});
      });
}

template <typename T>
struct LoadSquare {
  const T* x;
  WEFT_DEVICE double operator()(int64_t i, int64_t) const {
    return static_cast<double>(x[i]) * x[i];
  }
};

template <typename T>
struct ScaleToNorm {
  const double* sum_of_squares;
  double max_norm;
  const T* x;
  T* out;
  WEFT_DEVICE void operator()(int64_t i) const {
    const double norm = sqrt(*sum_of_squares);
    const T factor = norm <= max_norm ? T(1) : static_cast<T>(max_norm / norm);
    out[i] = factor * x[i];
  }
};

// Out = X, scaled down to the norm max_norm if its norm is larger.
absl::StatusOr<Kernel> ClipByNorm(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double max_norm = op.attrs().Float("max_norm");
  op.Supports(Floats(x));
  if (!(max_norm > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute max_norm: expected more than 0, found ", max_norm));
  }
  return op.InPlace().Make(
      Floats(x),
      [=, sum = std::make_shared<Tensor>(), scratch = std::make_shared<Tensor>()](
          const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        const Dims dims = {x(ctx).size()};
        ScratchLike(x(ctx), sum.get())->Resize(DType::kFloat64, {1});
        WEFT_RETURN_IF_ERROR(ReduceTo(ctx, dims, {1}, 0.0, LoadSquare<T>{x.data<T>(ctx)},
                                      gpu::Plus(), ScratchLike(x(ctx), scratch.get()),
                                      StoreElement<double>{sum->data<double>()}));
        return ForEach(
            ctx, x(ctx).size(),
            ScaleToNorm<T>{sum->data<double>(), max_norm, x.data<T>(ctx), out.data<T>(ctx)});
      });
}

}  // namespace

void AddGpuClipKernels(KernelTable* table) {
  table->Add("clip", Clip, ClipGrad);
  table->Add("clip_by_norm", ClipByNorm);
}

}  // namespace weft
