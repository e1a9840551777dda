// The gated unit of feed-forward layers, by the formula of ops/formulas/swiglu.h.
#include "ops/formulas/swiglu.h"

#include <cstdint>

#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// out = SiLU(x) y; one tensor holds y after x.
absl::StatusOr<Kernel> Swiglu(OpKernel op) {
  const In x = op.in("x"), y = op.in("y");
  const Out out = op.out("out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const bool has_y = y.get(ctx) != nullptr;
    const formulas::SwigluHalves halves(x(ctx).dims(), has_y);
    const T* xs = x.data<T>(ctx);
    const T* ys = has_y ? y.data<T>(ctx) : xs + halves.half();
    T* to = out.data<T>(ctx);
    for (int64_t i = 0; i < out(ctx).size(); ++i) {
      const int64_t k = halves(i);
      to[i] = formulas::Swiglu::Out(xs[k], ys[k]);
    }
  });
}

absl::StatusOr<Kernel> SwigluGrad(OpKernel op) {
  const In x = op.in("x"), y = op.in("y"), dout = op.in("out@GRAD");
  const Out dx = op.out("x@GRAD"), dy = op.out("y@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const bool has_y = y.get(ctx) != nullptr;
    const formulas::SwigluHalves halves(x(ctx).dims(), has_y);
    const T *xs = x.data<T>(ctx), *douts = dout.data<T>(ctx);
    const T* ys = has_y ? y.data<T>(ctx) : xs + halves.half();
    T* const to_x = dx.data_or_null<T>(ctx);
    T* const to_half = to_x == nullptr ? nullptr : to_x + halves.half();
    T* const to_y = has_y ? dy.data_or_null<T>(ctx) : to_half;
    for (int64_t i = 0; i < dout(ctx).size(); ++i) {
      const int64_t k = halves(i);
      if (to_x != nullptr) to_x[k] = formulas::Swiglu::Dx(xs[k], ys[k], douts[i]);
      if (to_y != nullptr) to_y[k] = formulas::Swiglu::Dy(xs[k], douts[i]);
    }
  });
}

}  // namespace

void AddSwigluKernels(KernelTable* table) { table->Add("swiglu", Swiglu, SwigluGrad); }

}  // namespace weft
