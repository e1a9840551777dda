// The logarithm of softmax.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/cpu/axis_rows.h"
#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = X - log Σ exp X.
absl::StatusOr<Kernel> LogSoftmax(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = spec.attrs.Int("axis");
  return op.InPlace(out, x).Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const AxisRows rows = RowsAlong(x(ctx).dims(), axis);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const T* from = x.data<T>(ctx) + rows.Start(r);
      T* to = out.data<T>(ctx) + rows.Start(r);
      T largest = -std::numeric_limits<T>::infinity();
      for (int64_t k = 0; k < rows.length; ++k) largest = std::max(largest, from[k * rows.stride]);
      double sum = 0;
      for (int64_t k = 0; k < rows.length; ++k) sum += std::exp(from[k * rows.stride] - largest);
      const T log_sum = static_cast<T>(std::log(sum));
      for (int64_t k = 0; k < rows.length; ++k) {
        to[k * rows.stride] = from[k * rows.stride] - largest - log_sum;
      }
    }
  });
}

// X@GRAD = Out@GRAD - exp(Out) Σ Out@GRAD.
absl::StatusOr<Kernel> LogSoftmaxGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = spec.attrs.Int("axis");
  return op.InPlace(dx, dout).InPlace(dx, out).Make(
      Floats(out), [=](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const T *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
        T* to = dx.data<T>(ctx);
        const AxisRows rows = RowsAlong(out(ctx).dims(), axis);
        for (int64_t r = 0; r < rows.count(); ++r) {
          double sum = 0;
          const int64_t start = rows.Start(r), end = start + rows.length * rows.stride;
          for (int64_t i = start; i < end; i += rows.stride) sum += dys[i];
          for (int64_t i = start; i < end; i += rows.stride) {
            to[i] = dys[i] - std::exp(ys[i]) * static_cast<T>(sum);
          }
        }
      });
}

}  // namespace

void AddLogSoftmaxKernels(KernelTable* table) {
  table->Add("log_softmax", LogSoftmax);
  table->Add("log_softmax_grad", LogSoftmaxGrad);
}

}  // namespace weft
