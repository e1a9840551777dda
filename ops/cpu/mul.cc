// The matrix product of two tensors flattened to matrices.
#include <memory>

#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/kernel_util.h"

namespace weft {
namespace {

// How mul sees its operands: X as m × k, its first x_num_col_dims dimensions being the rows; Y as
// k × n, its first y_num_col_dims dimensions being the rows.
struct Shapes {
  int64_t m, k, n;
  Dims out;  // the row dimensions of X, then the column dimensions of Y
};

absl::StatusOr<Shapes> Flatten(const Dims& x, const Dims& y, int64_t x_rows, int64_t y_rows) {
  if (x_rows > static_cast<int64_t>(x.size()) || y_rows > static_cast<int64_t>(y.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "inputs X and Y: shapes ", DimsToString(x), " and ", DimsToString(y),
        " have fewer dimensions than x_num_col_dims ", x_rows, " and y_num_col_dims ", y_rows));
  }
  const auto x_dims = absl::MakeConstSpan(x), y_dims = absl::MakeConstSpan(y);
  Shapes shapes;
  shapes.m = NumElements(x_dims.first(x_rows));
  shapes.k = NumElements(x_dims.subspan(x_rows));
  shapes.n = NumElements(y_dims.subspan(y_rows));
  if (NumElements(y_dims.first(y_rows)) != shapes.k) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input Y: shape ", DimsToString(y), " has ", NumElements(y_dims.first(y_rows)),
        " rows, expected ", shapes.k, ", the columns of X of shape ", DimsToString(x)));
  }
  shapes.out.assign(x.begin(), x.begin() + x_rows);
  shapes.out.insert(shapes.out.end(), y.begin() + y_rows, y.end());
  return shapes;
}

// What mul and its gradient have in common.
struct Common {
  int x, y;  // indices of the operands
  int64_t x_rows, y_rows;

  static absl::StatusOr<Common> Make(const KernelSpec& spec) {
    Common common;
    WEFT_ASSIGN_OR_RETURN(common.x, RequiredInput(spec, "X"));
    WEFT_ASSIGN_OR_RETURN(common.y, RequiredInput(spec, "Y"));
    common.x_rows = spec.attrs.Int("x_num_col_dims");
    common.y_rows = spec.attrs.Int("y_num_col_dims");
    if (common.x_rows < 1 || common.y_rows < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("attributes x_num_col_dims and y_num_col_dims: expected at least 1, found ",
                       common.x_rows, " and ", common.y_rows));
    }
    return common;
  }

  absl::StatusOr<Shapes> Shape(const KernelContext& ctx) const {
    return Flatten(ctx.in(x)->dims(), ctx.in(y)->dims(), x_rows, y_rows);
  }
};

// Out = X Y.
absl::StatusOr<Kernel> Mul(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const Common common, Common::Make(spec));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  auto gemm = std::make_shared<Gemm>(Transpose::kNo, Transpose::kNo);
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(common.x);
    const Tensor& y = *ctx.in(common.y);
    Tensor* out = ctx.out(out_index);
    WEFT_ASSIGN_OR_RETURN(const Shapes s, common.Shape(ctx));
    return ForFloatType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      out->Resize(x.dtype(), s.out);
      gemm->Run(s.m, s.n, s.k, x.data<T>(), y.data<T>(), out->data<T>());
      return absl::OkStatus();
    });
  });
}

// X@GRAD = Out@GRAD Yᵀ, Y@GRAD = Xᵀ Out@GRAD.
absl::StatusOr<Kernel> MulGrad(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const Common common, Common::Make(spec));
  WEFT_ASSIGN_OR_RETURN(const int dout_index, RequiredInput(spec, "Out@GRAD"));
  const int dx_index = spec.Output("X@GRAD"), dy_index = spec.Output("Y@GRAD");
  auto dx_gemm = std::make_shared<Gemm>(Transpose::kNo, Transpose::kYes);
  auto dy_gemm = std::make_shared<Gemm>(Transpose::kYes, Transpose::kNo);
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(common.x);
    const Tensor& y = *ctx.in(common.y);
    const Tensor& dout = *ctx.in(dout_index);
    WEFT_ASSIGN_OR_RETURN(const Shapes s, common.Shape(ctx));
    WEFT_RETURN_IF_ERROR(CheckSize("Out@GRAD", dout, s.m * s.n));
    return ForFloatType("input Out@GRAD", dout, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (Tensor* dx = ctx.out(dx_index)) {
        dx->Resize(dout.dtype(), x.dims());
        dx_gemm->Run(s.m, s.k, s.n, dout.data<T>(), y.data<T>(), dx->data<T>());
      }
      if (Tensor* dy = ctx.out(dy_index)) {
        dy->Resize(dout.dtype(), y.dims());
        dy_gemm->Run(s.k, s.n, s.m, x.data<T>(), dout.data<T>(), dy->data<T>());
      }
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddMulKernels(KernelTable* table) {
  table->Add("mul", Mul);
  table->Add("mul_grad", MulGrad);
}

}  // namespace weft
