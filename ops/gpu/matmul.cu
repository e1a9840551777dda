// Products of matrices.
#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/gpu/families.h"
#include "ops/gpu/gemm.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/sum_broadcast.h"
#include "ops/op_kernel.h"
#include "ops/products.h"

namespace weft {
namespace {

// C = alpha op(A) op(B) for every position of the batch dimensions. The innermost loop over them,
// of which each operand has all matrices or one, is the batch of one product.
template <typename T, typename To>
absl::Status Multiply(const KernelContext& ctx, GpuGemm* gemm, const Dims& batch,
                      const Dims& a_batch, const Dims& b_batch, GpuGemmShape shape, const T* a,
                      const T* b, To* c) {
  LoopNest nest = MakeLoopNest(batch, a_batch, b_batch);
  if (!nest.extents.empty()) {
    const LoopNest::Loop inner = nest.TakeInnermost();
    shape.batch = inner.extent;
    shape.repeats_a = inner.a_stride == 0;
    shape.repeats_b = inner.b_stride == 0;
  }
  const int64_t a_size = shape.m * shape.k, b_size = shape.k * shape.n;
  const int64_t c_size = shape.batch * shape.m * shape.n;
  absl::Status status;
  Walk(nest, [&](int64_t i, int64_t j) {
    status.Update(gemm->Run(ctx, shape, a + i * a_size, b + j * b_size, c));
    c += c_size;
  });
  return status;
}

// Out = alpha X Y.
absl::StatusOr<Kernel> Forward(OpKernel op, const ProductOp& product) {
  WEFT_RETURN_IF_ERROR(GpuGemm::Load());
  const In x = op.in(product.x), y = op.in(product.y);
  const Out out = op.out("Out");
  return op.TakesHalves({x, y}).Make(
      FloatsAndHalves(x),
      [=, gemm = std::make_shared<GpuGemm>(op.spec().tf32)](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const Product p = product.shape(x(ctx).dims(), y(ctx).dims());
        return Multiply(ctx, gemm.get(), p.batch, p.x_batch, p.y_batch,
                        {p.trans_x, p.trans_y, p.m, p.n, p.k, product.alpha}, x.data<T>(ctx),
                        y.data<T>(ctx), out.data<T>(ctx));
      });
}

// The gradient of an operand: products for every batch position, summed over broadcast dimensions.
class Gradient {
 public:
  explicit Gradient(bool tf32) : gemm_(tf32) {}

  // For alpha Out@GRAD op(Y)', transposed if X is.
  template <typename T>
  absl::Status OfX(const KernelContext& ctx, const Product& p, double alpha, const T* dout,
                   const T* y, Tensor* dx) {
    if (p.trans_x) {
      return Run(ctx, p, p.x_batch, p.y_batch, p.batch, {p.trans_y, true, p.k, p.m, p.n, alpha}, y,
                 dout, dx);
    }
    return Run(ctx, p, p.x_batch, p.batch, p.y_batch, {false, !p.trans_y, p.m, p.k, p.n, alpha},
               dout, y, dx);
  }
  // For alpha op(X)' Out@GRAD, transposed if Y is.
  template <typename T>
  absl::Status OfY(const KernelContext& ctx, const Product& p, double alpha, const T* dout,
                   const T* x, Tensor* dy) {
    if (p.trans_y) {
      return Run(ctx, p, p.y_batch, p.batch, p.x_batch, {true, p.trans_x, p.n, p.k, p.m, alpha},
                 dout, x, dy);
    }
    return Run(ctx, p, p.y_batch, p.x_batch, p.batch, {!p.trans_x, false, p.k, p.n, p.m, alpha}, x,
               dout, dy);
  }

 private:
  template <typename T>
  absl::Status Run(const KernelContext& ctx, const Product& p, const Dims& batch,
                   const Dims& a_batch, const Dims& b_batch, const GpuGemmShape& shape, const T* a,
                   const T* b, Tensor* gradient) {
    if (batch == p.batch) {
      return Multiply(ctx, &gemm_, p.batch, a_batch, b_batch, shape, a, b, gradient->data<T>());
    }
    Dims full = p.batch, summed = batch;
    full.push_back(shape.m * shape.n);
    summed.push_back(shape.m * shape.n);
    if (!products_.allocated()) products_ = Tensor(gradient->memory());
    using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
    products_.Resize(DTypeOf<Sum>::value, full);
    Sum* const products = products_.data<Sum>();
    WEFT_RETURN_IF_ERROR(Multiply(ctx, &gemm_, p.batch, a_batch, b_batch, shape, a, b, products));
    return SumBroadcastTo(ctx, ElementAt<Sum>{products}, full, summed,
                          ScratchLike(*gradient, &sums_), gradient->data<T>());
  }

  GpuGemm gemm_;
  Tensor products_, sums_;
};

// X@GRAD = alpha Out@GRAD op(Y)', Y@GRAD = alpha op(X)' Out@GRAD; transposed if the operand is.
absl::StatusOr<Kernel> Backward(OpKernel op, const ProductOp& product) {
  WEFT_RETURN_IF_ERROR(GpuGemm::Load());
  const In x = op.in(product.x), y = op.in(product.y), dout = op.in("Out@GRAD");
  const Out dx = op.out(absl::StrCat(product.x, "@GRAD"));
  const Out dy = op.out(absl::StrCat(product.y, "@GRAD"));
  return op.TakesHalves({x, y, dout})
      .Make(FloatsAndHalves(dout),
            [=, of_x = std::make_shared<Gradient>(op.spec().tf32),
             of_y = std::make_shared<Gradient>(op.spec().tf32)](const KernelContext& ctx,
                                                                auto zero) -> absl::Status {
              using T = decltype(zero);
              const Product p = product.shape(x(ctx).dims(), y(ctx).dims());
              const T* douts = dout.data<T>(ctx);
              if (Tensor* gradient = dx.get(ctx)) {
                WEFT_RETURN_IF_ERROR(
                    of_x->OfX(ctx, p, product.alpha, douts, y.data<T>(ctx), gradient));
              }
              if (Tensor* gradient = dy.get(ctx)) {
                WEFT_RETURN_IF_ERROR(
                    of_y->OfY(ctx, p, product.alpha, douts, x.data<T>(ctx), gradient));
              }
              return absl::OkStatus();
            });
}

template <ProductOp (*product)(const KernelSpec&)>
void AddProduct(const char* type, KernelTable* table) {
  table->Add(
      type,
      [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
        WEFT_RETURN_IF_ERROR(CheckResultType(spec));
        return Forward(spec, product(spec));
      },
      [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
        WEFT_RETURN_IF_ERROR(CheckResultType(spec));
        return Backward(spec, product(spec));
      });
}

}  // namespace

void AddGpuMatMulKernels(KernelTable* table) {
  AddProduct<Mul>("mul", table);
  AddProduct<MatMul>("matmul", table);
  AddProduct<MatMulV2>("matmul_v2", table);
  AddProduct<Bmm>("bmm", table);
  AddProduct<Mv>("mv", table);
}

}  // namespace weft
