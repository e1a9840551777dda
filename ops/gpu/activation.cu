// Functions of one tensor, elementwise, by the formulas of ops/formulas/activation.h.
#include <type_traits>

#include "base/status_macros.h"
#include "ops/formulas/activation.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = f(X).
template <typename F>
absl::StatusOr<Kernel> Forward(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const formulas::OutOf<F> f{formulas::Make<F>(op.attrs())};
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEach(ctx, x(ctx).size(),
                   MapOne<T, formulas::OutOf<F>>{f, x.data<T>(ctx), out.data<T>(ctx)});
  });
}

template <typename F>
absl::StatusOr<Kernel> Backward(OpKernel op) {
  using Gradient = formulas::XGradOf<F>;
  // leaky_relu_grad of Paddle 1 has Out instead of X: elements of the same sign.
  const bool reads_out = std::is_same_v<F, formulas::LeakyRelu> && op.spec().Input("X") < 0;
  const char* const reads = reads_out ? "Out" : Gradient::kReads;
  WEFT_RETURN_IF_ERROR(RequiredInput(op.spec(), reads).status());
  const In read = op.in(reads), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const Gradient f{formulas::Make<F>(op.attrs())};
  return op.InPlace().Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEach(ctx, dout(ctx).size(),
                   MapTwo<T, Gradient>{f, read.data<T>(ctx), dout.data<T>(ctx), dx.data<T>(ctx)});
  });
}

}  // namespace

void AddGpuActivationKernels(KernelTable* table) {
  formulas::ForEachActivation([table](const char* type, auto tag) {
    using F = typename decltype(tag)::Formula;
    table->Add(type, Forward<F>, Backward<F>);
  });
  table->Add("sign", Forward<formulas::Sign>);
}

}  // namespace weft
