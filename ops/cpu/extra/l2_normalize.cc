// Rows along a dimension scaled to the length 1.
#include <cmath>
#include <cstdint>

#include "ops/cpu/axis_rows.h"
#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Norm = √(Σ X² + epsilon), Out = X / Norm.
absl::StatusOr<Kernel> L2Normalize(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out"), norm = op.out("Norm");
  const int64_t axis = spec.attrs.Int("axis");
  const double epsilon = spec.attrs.Float("epsilon");
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const AxisRows rows = RowsAlong(x(ctx).dims(), axis);
    const T* xs = x.data<T>(ctx);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t start = rows.Start(r), end = start + rows.length * rows.stride;
      double sum = epsilon;
      for (int64_t i = start; i < end; i += rows.stride) sum += double{xs[i]} * xs[i];
      const T root = static_cast<T>(std::sqrt(sum));
      for (int64_t i = start; i < end; i += rows.stride) out.data<T>(ctx)[i] = xs[i] / root;
      if (T* norms = norm.data_or_null<T>(ctx)) norms[r] = root;
    }
  });
}

// X@GRAD = (Out@GRAD - X (Σ X Out@GRAD) / Norm²) / Norm.
absl::StatusOr<Kernel> L2NormalizeGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), norm = op.in("Norm"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = spec.attrs.Int("axis");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const AxisRows rows = RowsAlong(x(ctx).dims(), axis);
    const T *xs = x.data<T>(ctx), *dys = dout.data<T>(ctx);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t start = rows.Start(r), end = start + rows.length * rows.stride;
      const double n = norm.data<T>(ctx)[r];
      double dot = 0;
      for (int64_t i = start; i < end; i += rows.stride) dot += double{xs[i]} * dys[i];
      for (int64_t i = start; i < end; i += rows.stride) {
        dx.data<T>(ctx)[i] = static_cast<T>((dys[i] - xs[i] * dot / (n * n)) / n);
      }
    }
  });
}

}  // namespace

void AddL2NormalizeKernels(KernelTable* table) {
  table->Add("norm", L2Normalize);
  table->Add("norm_grad", L2NormalizeGrad);
}

}  // namespace weft
