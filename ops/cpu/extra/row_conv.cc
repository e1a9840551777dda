// Convolution over time that looks ahead, each feature by itself: of X, [batch, time, features],
//   Out[n, t] = Σ_w Filter[w] X[n, t + w]  as far as there is time
#include <algorithm>
#include <cstdint>

#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Calls visit(out, in, filter) with the positions of rows of Out, X and Filter that belong
// together.
template <typename Visit>
void ForEachProduct(const Dims& x, int64_t ahead, Visit visit) {
  const int64_t time = x[1], width = x[2];
  for (int64_t n = 0; n < x[0]; ++n) {
    for (int64_t t = 0; t < time; ++t) {
      for (int64_t w = 0; w < std::min(ahead, time - t); ++w) {
        visit((n * time + t) * width, (n * time + t + w) * width, w * width);
      }
    }
  }
}

// to += a b
template <typename T>
void AddProduct(int64_t width, const T* a, const T* b, T* to) {
  for (int64_t k = 0; k < width; ++k) to[k] += a[k] * b[k];
}

absl::StatusOr<Kernel> RowConv(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), filter = op.in("Filter");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims& dims = x(ctx).dims();
    const T *from = x.data<T>(ctx), *weights = filter.data<T>(ctx);
    T* to = out.data<T>(ctx);
    std::fill_n(to, out(ctx).size(), T(0));
    ForEachProduct(dims, filter(ctx).dim(0), [&](int64_t o, int64_t i, int64_t w) {
      AddProduct(dims[2], from + i, weights + w, to + o);
    });
  });
}

absl::StatusOr<Kernel> RowConvGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), filter = op.in("Filter"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dfilter = op.out("Filter@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims& dims = x(ctx).dims();
    const T *from = x.data<T>(ctx), *weights = filter.data<T>(ctx), *douts = dout.data<T>(ctx);
    T *dxs = dx.data_or_null<T>(ctx), *dweights = dfilter.data_or_null<T>(ctx);
    if (dxs != nullptr) std::fill_n(dxs, dx(ctx).size(), T(0));
    if (dweights != nullptr) std::fill_n(dweights, dfilter(ctx).size(), T(0));
    ForEachProduct(dims, filter(ctx).dim(0), [&](int64_t o, int64_t i, int64_t w) {
      if (dxs != nullptr) AddProduct(dims[2], douts + o, weights + w, dxs + i);
      if (dweights != nullptr) AddProduct(dims[2], douts + o, from + i, dweights + w);
    });
  });
}

}  // namespace

void AddRowConvKernels(KernelTable* table) {
  table->Add("row_conv", RowConv);
  table->Add("row_conv_grad", RowConvGrad);
}

}  // namespace weft
