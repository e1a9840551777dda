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

// Out = softmax of X, possibly in place.
absl::StatusOr<Kernel> Softmax(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  const int64_t axis = spec.attrs.Int("axis");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    Tensor* out = ctx.out(out_index);
    WEFT_ASSIGN_OR_RETURN(const ClassRows rows, ClassRows::Along(axis, x.dims()));
    return ForFloatType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      out->Resize(x.dtype(), x.dims());
      for (int64_t r = 0; r < rows.count(); ++r) {
        const int64_t start = rows.Start(r);
        SoftmaxRow(x.data<T>() + start, rows.classes, rows.stride, out->data<T>() + start);
      }
      return absl::OkStatus();
    });
  });
}

// X@GRAD = Out (Out@GRAD - sum over the row of Out Out@GRAD), possibly in place of either.
absl::StatusOr<Kernel> SoftmaxGrad(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredInput(spec, "Out"));
  WEFT_ASSIGN_OR_RETURN(const int dout_index, RequiredInput(spec, "Out@GRAD"));
  const int dx_index = spec.Output("X@GRAD");
  const int64_t axis = spec.attrs.Int("axis");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& out = *ctx.in(out_index);
    const Tensor& dout = *ctx.in(dout_index);
    Tensor* dx = ctx.out(dx_index);
    if (dx == nullptr) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(CheckDims("Out@GRAD", dout, out.dims()));
    WEFT_ASSIGN_OR_RETURN(const ClassRows rows, ClassRows::Along(axis, out.dims()));
    return ForFloatType("input Out", out, [&](auto tag) {
      using T = typename decltype(tag)::type;
      dx->Resize(out.dtype(), out.dims());
      const T *p = out.data<T>(), *dp = dout.data<T>();
      T* to = dx->data<T>();
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
  });
}

}  // namespace

void AddSoftmaxKernels(KernelTable* table) {
  table->Add("softmax", Framed(Softmax, WorksInPlace::kYes));
  table->Add("softmax_grad", Framed(SoftmaxGrad, WorksInPlace::kYes));
}

}  // namespace weft
