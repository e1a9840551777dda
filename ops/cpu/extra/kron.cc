// Kronecker products.
#include <algorithm>
#include <cstdint>

#include "ops/broadcast.h"
#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// X and Y with dimensions d as 2 d and 2 d + 1 of a tensor, along which each other is repeated:
// their product under these dims is the Kronecker product.
Broadcast Interleaved(const Dims& x, const Dims& y) {
  Broadcast shapes;
  const size_t rank = std::max(x.size(), y.size());
  for (size_t d = 0; d < rank; ++d) {
    const int64_t a = d + x.size() < rank ? 1 : x[d + x.size() - rank];
    const int64_t b = d + y.size() < rank ? 1 : y[d + y.size() - rank];
    shapes.x.insert(shapes.x.end(), {a, 1});
    shapes.y.insert(shapes.y.end(), {1, b});
    shapes.out.insert(shapes.out.end(), {a, b});
  }
  return shapes;
}

// Out = X ⊗ Y, the Kronecker product.
absl::StatusOr<Kernel> Kron(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    MapBroadcast(Interleaved(x(ctx).dims(), y(ctx).dims()), x.data<T>(ctx), y.data<T>(ctx),
                 out.data<T>(ctx),
                 [](T a, T b) { return static_cast<T>(Wrapping(a) * Wrapping(b)); });
  });
}

// X@GRAD = Σ Out@GRAD Y over the elements of Y, Y@GRAD = Σ Out@GRAD X over those of X.
absl::StatusOr<Kernel> KronGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), y = op.in("Y"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *ys = y.data<T>(ctx), *d = dout.data<T>(ctx);
    T *dxs = dx.data_or_null<T>(ctx), *dys = dy.data_or_null<T>(ctx);
    if (dxs != nullptr) std::fill_n(dxs, x(ctx).size(), T(0));
    if (dys != nullptr) std::fill_n(dys, y(ctx).size(), T(0));
    const Broadcast shapes = Interleaved(x(ctx).dims(), y(ctx).dims());
    Walk(MakeLoopNest(shapes.out, shapes.x, shapes.y), [&](int64_t i, int64_t j) {
      if (dxs != nullptr) dxs[i] += *d * ys[j];
      if (dys != nullptr) dys[j] += *d * xs[i];
      ++d;
    });
  });
}

}  // namespace

void AddKronKernels(KernelTable* table) {
  table->Add("kron", Kron);
  table->Add("kron_grad", KronGrad);
}

}  // namespace weft
