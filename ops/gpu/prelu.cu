// ReLU with a trained slope for negative elements, by the formulas of ops/formulas/prelu.h.
#include <cstdint>

#include "base/status_macros.h"
#include "ops/formulas/prelu.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/reduce_loops.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Of X, or of the gradient of Out.
template <typename T>
struct PreluElement {
  formulas::PreluSlopes slope;
  const T *x, *alpha, *from;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    to[i] = formulas::Prelu::Apply(x[i], alpha[slope(i)], from[i]);
  }
};

template <typename T>
struct AlphaGradOf {
  const T *x, *dout;
  WEFT_DEVICE double operator()(int64_t i, int64_t) const {
    return formulas::Prelu::AlphaGrad(x[i], dout[i]);
  }
};

absl::StatusOr<Kernel> Prelu(OpKernel op) {
  const In x = op.in("X"), alpha = op.in("Alpha");
  const Out out = op.out("Out");
  return op.InPlace(out, x).Make(
      Floats(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const T* xs = x.data<T>(ctx);
        return ForEach(ctx, x(ctx).size(),
                       PreluElement<T>{formulas::PreluSlopes(attrs, x(ctx).dims()), xs,
                                       alpha.data<T>(ctx), xs, out.data<T>(ctx)});
      });
}

// The slope of an element is at / slopes.stride % slopes.count: the gradient of a slope is a sum
// over the other two of three dimensions.
absl::StatusOr<Kernel> PreluGrad(OpKernel op) {
  const In x = op.in("X"), alpha = op.in("Alpha"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dalpha = op.out("Alpha@GRAD");
  return op.Make(Floats(x),
                 [=, attrs = op.attrs(), scratch = Tensor()](const KernelContext& ctx,
                                                             auto zero) mutable -> absl::Status {
                   using T = decltype(zero);
                   const formulas::PreluSlopes slope(attrs, x(ctx).dims());
                   const int64_t size = x(ctx).size();
                   const T *xs = x.data<T>(ctx), *douts = dout.data<T>(ctx);
                   if (T* to = dx.data_or_null<T>(ctx)) {
                     WEFT_RETURN_IF_ERROR(ForEach(
                         ctx, size, PreluElement<T>{slope, xs, alpha.data<T>(ctx), douts, to}));
                   }
                   T* const sums = dalpha.data_or_null<T>(ctx);
                   if (sums == nullptr) return absl::OkStatus();
                   if (size == 0) return Clear(ctx, sums, dalpha(ctx).bytes());
                   const Dims dims = {size / slope.count / slope.stride, slope.count, slope.stride};
                   return ReduceTo(ctx, dims, {1, slope.count, 1}, 0.0, AlphaGradOf<T>{xs, douts},
                                   gpu::Plus(), ScratchLike(dalpha(ctx), &scratch),
                                   StoreElement<T>{sums});
                 });
}

}  // namespace

void AddGpuPreluKernels(KernelTable* table) { table->Add("prelu", Prelu, PreluGrad); }

}  // namespace weft
