// Functions of one tensor, elementwise.
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

template <typename T>
struct ReluForward {
  const T* x;
  T* out;
  __device__ void operator()(int64_t i) const { out[i] = x[i] > T(0) ? x[i] : T(0); }
};

template <typename T>
struct ReluBackward {
  const T *out, *dout;
  T* dx;
  __device__ void operator()(int64_t i) const { dx[i] = out[i] > T(0) ? dout[i] : T(0); }
};

// Out = max(X, 0).
absl::StatusOr<Kernel> Relu(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEach(ctx, x(ctx).size(), ReluForward<T>{x.data<T>(ctx), out.data<T>(ctx)});
  });
}

// X@GRAD = Out@GRAD if Out > 0, else 0.
absl::StatusOr<Kernel> ReluGrad(OpKernel op) {
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Ignore({"X"}).InPlace().Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEach(ctx, dout(ctx).size(),
                   ReluBackward<T>{out.data<T>(ctx), dout.data<T>(ctx), dx.data<T>(ctx)});
  });
}

}  // namespace

void AddGpuActivationKernels(KernelTable* table) { table->Add("relu", Relu, ReluGrad); }

}  // namespace weft
