// Products of matrices.
#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/gpu/families.h"
#include "ops/gpu/gemm.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The dims before `num_col_dims` are the rows of a matrix, the others its columns.
struct Matrix {
  int64_t rows, columns;

  Matrix(const Tensor& tensor, int64_t num_col_dims)
      : rows(NumElements(absl::MakeConstSpan(tensor.dims()).first(num_col_dims))),
        columns(NumElements(absl::MakeConstSpan(tensor.dims()).subspan(num_col_dims))) {}
};

// Out = X Y.
absl::StatusOr<Kernel> Mul(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const int64_t x_dims = op.attrs().Int("x_num_col_dims"),
                y_dims = op.attrs().Int("y_num_col_dims");
  return op.Make(Floats(x), [=, gemm = std::make_shared<GpuGemm>(false, false)](
                                const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Matrix a(x(ctx), x_dims), b(y(ctx), y_dims);
    return gemm->Run(ctx, a.rows, b.columns, a.columns, x.data<T>(ctx), y.data<T>(ctx),
                     out.data<T>(ctx));
  });
}

// X@GRAD = Out@GRAD Y', Y@GRAD = X' Out@GRAD.
absl::StatusOr<Kernel> MulGrad(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const int64_t x_dims = op.attrs().Int("x_num_col_dims"),
                y_dims = op.attrs().Int("y_num_col_dims");
  return op.Make(
      Floats(dout),
      [=, to_x = std::make_shared<GpuGemm>(false, true),
       to_y = std::make_shared<GpuGemm>(true, false)](const KernelContext& ctx,
                                                      auto zero) -> absl::Status {
        using T = decltype(zero);
        const Matrix a(x(ctx), x_dims), b(y(ctx), y_dims);
        if (dx.get(ctx) != nullptr) {
          WEFT_RETURN_IF_ERROR(to_x->Run(ctx, a.rows, a.columns, b.columns, dout.data<T>(ctx),
                                         y.data<T>(ctx), dx.data<T>(ctx)));
        }
        if (dy.get(ctx) == nullptr) return absl::OkStatus();
        return to_y->Run(ctx, b.rows, b.columns, a.rows, x.data<T>(ctx), dout.data<T>(ctx),
                         dy.data<T>(ctx));
      });
}

}  // namespace

void AddGpuMatMulKernels(KernelTable* table) { table->Add("mul", Mul, MulGrad); }

}  // namespace weft
