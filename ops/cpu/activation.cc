// Elementwise functions of one tensor, by the formulas of ops/formulas/activation.h. At the end:
// ReLU with a trained slope for negative elements.
#include "ops/formulas/activation.h"

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/erfinv.h"
#include "ops/cpu/families.h"
#include "ops/formulas/prelu.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = f(X).
template <typename F>
absl::StatusOr<Kernel> Forward(OpKernel op) {
  const In x = op.in("X");
  const formulas::OutOf<F> f{formulas::Make<F>(op.attrs())};
  return op.InPlace().MakeElementwise(Floats(x), op.out("Out"), f, x);
}

template <typename F>
absl::StatusOr<Kernel> Backward(OpKernel op) {
  using Gradient = formulas::XGradOf<F>;
  // leaky_relu_grad of Paddle 1 has Out instead of X: elements of the same sign.
  const bool reads_out = std::is_same_v<F, formulas::LeakyRelu> && op.spec().Input("X") < 0;
  const char* const reads = reads_out ? "Out" : Gradient::kReads;
  WEFT_RETURN_IF_ERROR(RequiredInput(op.spec(), reads).status());
  const In read = op.in(reads), dout = op.in("Out@GRAD");
  const Gradient f{formulas::Make<F>(op.attrs())};
  return op.InPlace().MakeElementwise(Floats(dout), op.out("X@GRAD"), f, read, dout);
}

// Has a formula for CPUs alone: CUDA has a function of its own.
struct InverseErf {
  template <typename T>
  T Out(T x) const {
    return Erfinv(x);
  }
  template <typename T>
  double GradFromOut(T out, T dout) const {
    return dout * std::sqrt(M_PI) / 2 * std::exp(double{out} * out);
  }
};

// --- prelu ---------------------------------------------------------------------------------------

// Out = X if X > 0, else Alpha X.
absl::StatusOr<Kernel> Prelu(OpKernel op) {
  const In x = op.in("X"), alpha = op.in("Alpha");
  const Out out = op.out("Out");
  return op.InPlace(out, x).Make(Floats(x),
                                 [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
                                   using T = decltype(zero);
                                   const formulas::PreluSlopes slope(attrs, x(ctx).dims());
                                   const T *xs = x.data<T>(ctx), *alphas = alpha.data<T>(ctx);
                                   T* to = out.data<T>(ctx);
                                   for (int64_t i = 0; i < x(ctx).size(); ++i) {
                                     to[i] = formulas::Prelu::Apply(xs[i], alphas[slope(i)], xs[i]);
                                   }
                                 });
}

// X@GRAD = Out@GRAD if X > 0, else Alpha Out@GRAD. Alpha@GRAD = Σ X Out@GRAD over X <= 0.
absl::StatusOr<Kernel> PreluGrad(OpKernel op) {
  const In x = op.in("X"), alpha = op.in("Alpha"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dalpha = op.out("Alpha@GRAD");
  return op.Make(Floats(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const formulas::PreluSlopes slope(attrs, x(ctx).dims());
    const T *xs = x.data<T>(ctx), *alphas = alpha.data<T>(ctx), *dys = dout.data<T>(ctx);
    std::vector<double> sums(slope.count, 0.0);
    T* to = dx.data_or_null<T>(ctx);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      if (to != nullptr) to[i] = formulas::Prelu::Apply(xs[i], alphas[slope(i)], dys[i]);
      sums[slope(i)] += formulas::Prelu::AlphaGrad(xs[i], dys[i]);
    }
    if (T* sum = dalpha.data_or_null<T>(ctx)) {
      for (int64_t k = 0; k < slope.count; ++k) sum[k] = static_cast<T>(sums[k]);
    }
  });
}

}  // namespace

void AddActivationKernels(KernelTable* table) {
  formulas::ForEachActivation([table](const char* type, auto tag) {
    using F = typename decltype(tag)::Formula;
    table->Add(type, Forward<F>, Backward<F>);
  });
  table->Add("erfinv", Forward<InverseErf>, Backward<InverseErf>);
  table->Add("sign", Forward<formulas::Sign>);
  table->Add("prelu", Prelu, PreluGrad);
}

}  // namespace weft
