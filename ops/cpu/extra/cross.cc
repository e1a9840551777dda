// Cross products of vectors of three elements.
#include <algorithm>
#include <cstdint>

#include "ops/cpu/axis_rows.h"
#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Attribute dim; 9, its default, stands for the first dimension of size 3.
AxisRows VectorsOf(const Dims& dims, int64_t dim) {
  if (dim == 9) dim = std::find(dims.begin(), dims.end(), 3) - dims.begin();
  return *AxisRows::Along(dim, dims);
}

// to = a × b, of vectors of three elements along an axis.
template <typename T>
void CrossProducts(const AxisRows& rows, const T* a, const T* b, T* to) {
  for (int64_t r = 0; r < rows.count(); ++r) {
    const int64_t i = rows.Start(r), j = i + rows.stride, k = j + rows.stride;
    to[i] = a[j] * b[k] - a[k] * b[j];
    to[j] = a[k] * b[i] - a[i] * b[k];
    to[k] = a[i] * b[j] - a[j] * b[i];
  }
}

// Out = X × Y.
absl::StatusOr<Kernel> Cross(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const int64_t dim = spec.attrs.Int("dim");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    CrossProducts(VectorsOf(x(ctx).dims(), dim), x.data<T>(ctx), y.data<T>(ctx), out.data<T>(ctx));
  });
}

// X@GRAD = Y × Out@GRAD, Y@GRAD = Out@GRAD × X.
absl::StatusOr<Kernel> CrossGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), y = op.in("Y"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const int64_t dim = spec.attrs.Int("dim");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const AxisRows rows = VectorsOf(x(ctx).dims(), dim);
    const T* dys = dout.data<T>(ctx);
    if (T* to = dx.data_or_null<T>(ctx)) CrossProducts(rows, y.data<T>(ctx), dys, to);
    if (T* to = dy.data_or_null<T>(ctx)) CrossProducts(rows, dys, x.data<T>(ctx), to);
  });
}

}  // namespace

void AddCrossKernels(KernelTable* table) {
  table->Add("cross", Cross);
  table->Add("cross_grad", CrossGrad);
}

}  // namespace weft
