// Bilinear forms of two inputs, with a trained matrix for each output.
#include <cstdint>

#include "ops/cpu/extra/families.h"
#include "ops/cpu/extra/matrix.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The slices Weight[k].
template <typename T>
Matrix Slice(const Tensor& weight, int64_t k) {
  return ReadMatrix(weight.data<T>(), k, weight.dim(1), weight.dim(2));
}

// Out[b, k] = X[b] Weight[k] Y[b]ᵀ + Bias[k].
absl::StatusOr<Kernel> Bilinear(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), y = op.in("Y"), weight = op.in("Weight"), bias = op.in("Bias");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Matrix xs = ReadMatrix<T>(x(ctx)), ys = ReadMatrix<T>(y(ctx));
    Matrix sums(xs.rows(), weight(ctx).dim(0));
    for (int64_t k = 0; k < sums.cols(); ++k) {
      const double start = bias ? bias.data<T>(ctx)[k] : 0;
      sums.col(k) =
          (xs * Slice<T>(weight(ctx), k)).cwiseProduct(ys).rowwise().sum().array() + start;
    }
    WriteMatrix(sums, 0, out.data<T>(ctx));
  });
}

// With D = diag(Out@GRAD[:, k]), summed over k: X@GRAD = D Y Weight[k]ᵀ, Y@GRAD = D X Weight[k].
// Weight@GRAD[k] = Xᵀ D Y, Bias@GRAD[k] = Σ Out@GRAD[:, k].
absl::StatusOr<Kernel> BilinearGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), y = op.in("Y"), weight = op.in("Weight"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD"), dweight = op.out("Weight@GRAD");
  const Out dbias = op.out("Bias@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Matrix xs = ReadMatrix<T>(x(ctx)), ys = ReadMatrix<T>(y(ctx));
    const Matrix d = ReadMatrix<T>(dout(ctx));
    Matrix dxs = Matrix::Zero(xs.rows(), xs.cols()), dys = Matrix::Zero(ys.rows(), ys.cols());
    for (int64_t k = 0; k < d.cols(); ++k) {
      const Matrix w = Slice<T>(weight(ctx), k);
      const Matrix scaled_ys = d.col(k).asDiagonal() * ys, scaled_xs = d.col(k).asDiagonal() * xs;
      dxs += scaled_ys * w.transpose();
      dys += scaled_xs * w;
      if (T* to = dweight.data_or_null<T>(ctx)) WriteMatrix(xs.transpose() * scaled_ys, k, to);
    }
    if (T* to = dx.data_or_null<T>(ctx)) WriteMatrix(dxs, 0, to);
    if (T* to = dy.data_or_null<T>(ctx)) WriteMatrix(dys, 0, to);
    if (Tensor* gradient = dbias.get(ctx)) {
      gradient->Resize(x(ctx).dtype(), {1, d.cols()});
      WriteMatrix(d.colwise().sum(), 0, gradient->data<T>());
    }
  });
}

}  // namespace

void AddBilinearTensorProductKernels(KernelTable* table) {
  table->Add("bilinear_tensor_product", Bilinear);
  table->Add("bilinear_tensor_product_grad", BilinearGrad);
}

}  // namespace weft
