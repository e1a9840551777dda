#include "ops/cpu/softmax.h"

#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {

absl::StatusOr<ClassRows> ClassRows::Along(int64_t axis, const Dims& dims) {
  ClassRows rows;
  WEFT_ASSIGN_OR_RETURN(rows.axis, AxisOf(axis, dims));
  const auto all = absl::MakeConstSpan(dims);
  rows.outer = NumElements(all.first(rows.axis));
  rows.classes = dims[rows.axis];
  rows.stride = NumElements(all.subspan(rows.axis + 1));
  return rows;
}

namespace {

// Out = softmax of X.
absl::StatusOr<Kernel> Softmax(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = spec.attrs.Int("axis");
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const ClassRows rows, ClassRows::Along(axis, x(ctx).dims()));
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t start = rows.Start(r);
      SoftmaxRow(x.data<T>(ctx) + start, rows.classes, rows.stride, out.data<T>(ctx) + start);
    }
    return absl::OkStatus();
  });
}

// X@GRAD = Out (Out@GRAD - sum over the row of Out Out@GRAD).
absl::StatusOr<Kernel> SoftmaxGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = spec.attrs.Int("axis");
  return op.InPlace().Make(Floats(out), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const ClassRows rows, ClassRows::Along(axis, out(ctx).dims()));
    const T *p = out.data<T>(ctx), *dp = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t start = rows.Start(r), end = start + rows.classes * rows.stride;
      double dot = 0;
      for (int64_t i = start; i < end; i += rows.stride) dot += double{p[i]} * dp[i];
      for (int64_t i = start; i < end; i += rows.stride) {
        to[i] = p[i] * (dp[i] - static_cast<T>(dot));
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

void AddSoftmaxKernels(KernelTable* table) {
  table->Add("softmax", Softmax);
  table->Add("softmax_grad", SoftmaxGrad);
}

}  // namespace weft
