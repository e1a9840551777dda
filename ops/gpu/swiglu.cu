// The gated unit of feed-forward layers, by the formula of ops/formulas/swiglu.h.
#include <cstdint>

#include "ops/formulas/swiglu.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

template <typename T>
struct SwigluElement {
  formulas::SwigluHalves at;
  const T *x, *y;
  T* out;
  WEFT_DEVICE void operator()(int64_t i) const {
    out[i] = formulas::Swiglu::Out(x[at(i)], y[at(i)]);
  }
};

template <typename T>
struct SwigluGradients {
  formulas::SwigluHalves at;
  const T *x, *y, *dout;
  T *dx, *dy;  // may be null
  WEFT_DEVICE void operator()(int64_t i) const {
    const int64_t k = at(i);
    const T dx_k = formulas::Swiglu::Dx(x[k], y[k], dout[i]);
    const T dy_k = formulas::Swiglu::Dy(x[k], dout[i]);
    if (dx != nullptr) dx[k] = dx_k;
    if (dy != nullptr) dy[k] = dy_k;
  }
};

// out = SiLU(x) y; one tensor holds y after x.
absl::StatusOr<Kernel> Swiglu(OpKernel op) {
  const In x = op.in("x"), y = op.in("y");
  const Out out = op.out("out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const formulas::SwigluHalves halves(x(ctx).dims(), y.get(ctx) != nullptr);
    const T* xs = x.data<T>(ctx);
    const T* ys = y.get(ctx) != nullptr ? y.data<T>(ctx) : xs + halves.half();
    return ForEach(ctx, out(ctx).size(), SwigluElement<T>{halves, xs, ys, out.data<T>(ctx)});
  });
}

absl::StatusOr<Kernel> SwigluGrad(OpKernel op) {
  const In x = op.in("x"), y = op.in("y"), dout = op.in("out@GRAD");
  const Out dx = op.out("x@GRAD"), dy = op.out("y@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const bool has_y = y.get(ctx) != nullptr;
    const formulas::SwigluHalves halves(x(ctx).dims(), has_y);
    const T* xs = x.data<T>(ctx);
    const T* ys = has_y ? y.data<T>(ctx) : xs + halves.half();
    T* const to_x = dx.data_or_null<T>(ctx);
    T* const to_half = to_x == nullptr ? nullptr : to_x + halves.half();
    T* const to_y = has_y ? dy.data_or_null<T>(ctx) : to_half;
    return ForEach(ctx, dout(ctx).size(),
                   SwigluGradients<T>{halves, xs, ys, dout.data<T>(ctx), to_x, to_y});
  });
}

}  // namespace

void AddGpuSwigluKernels(KernelTable* table) { table->Add("swiglu", Swiglu, SwigluGrad); }

}  // namespace weft
