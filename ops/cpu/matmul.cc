// Batched matrix products, and ops based on them.
#include <cstdint>
#include <type_traits>

#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/dnnl_primitive.h"
#include "ops/cpu/families.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/post_ops.h"
#include "ops/half_arrays.h"
#include "ops/op_kernel.h"
#include "ops/products.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

Transpose Flip(Transpose t) { return t == Transpose::kYes ? Transpose::kNo : Transpose::kYes; }
Transpose TransposeIf(bool transposed) { return transposed ? Transpose::kYes : Transpose::kNo; }

// What products of BFloat16 are added up in.
template <typename T>
using SumOfType = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

// A product for every batch position.
template <typename T, typename Result = T>
class Products {
 public:
  // `shape`: of one product.
  Products(const Dims& batch, const Dims& a_batch, const Dims& b_batch, GemmShape shape,
           const PostOps& post_ops = {})
      : nest_(MakeLoopNest(batch, a_batch, b_batch)),
        a_size_(shape.m * shape.k),
        b_size_(shape.k * shape.n),
        shape_(TakeInnermostLoop(shape)),
        fuses_(nest_.extents.empty() && post_ops.channels() == shape.n),
        gemm_(shape_, fuses_ ? post_ops : PostOps()),
        post_ops_(post_ops) {}

  // With post-ops.
  absl::Status Run(const KernelContext& ctx, const T* a, const T* b, Tensor* c) const {
    if (fuses_ && gemm_.takes_post_ops()) {
      PostOps::Operands operands;
      post_ops_.AddOperands(ctx, &operands);
      return gemm_.Run(a, b, c->data<Result>(), operands);
    }
    WEFT_RETURN_IF_ERROR(Run(a, b, c->data<Result>()));
    post_ops_.Apply<Result>(ctx, c);
    return absl::OkStatus();
  }

  // Without.
  absl::Status Run(const T* a, const T* b, Result* c) const {
    absl::Status status;
    Walk(nest_, [&](int64_t i, int64_t j) {
      status.Update(gemm_.Run(a + i * a_size_, b + j * b_size_, c));
      c += c_size_;
    });
    return status;
  }

 private:
  // The innermost loop, of which each operand has all matrices or one, is the batch of one product.
  GemmShape TakeInnermostLoop(GemmShape shape) {
    if (!nest_.extents.empty()) {
      shape.batch = nest_.extents.back();
      shape.repeats_a = nest_.a_strides.back() == 0;
      shape.repeats_b = nest_.b_strides.back() == 0;
      nest_.extents.pop_back();
    }
    c_size_ = shape.batch * shape.m * shape.n;
    return shape;
  }

  LoopNest nest_;
  int64_t a_size_, b_size_, c_size_;
  GemmShape shape_;
  bool fuses_;  // post-ops: one call of gemm_ computes the result, whose columns are the channels
  BatchedGemm<T, Result> gemm_;
  PostOps post_ops_;
};

// Out = alpha X Y.
absl::StatusOr<Kernel> Forward(OpKernel op, const ProductOp& product) {
  const In x = op.in(product.x), y = op.in(product.y);
  const Out out = op.out("Out");
  if (HasBFloat16Products()) op.TakesBFloat16({x, y});
  return op.Make(
      FloatsAndBFloat16(x), [=, post_ops = op.TakePostOps()](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const Product p = product.shape(x(ctx).dims(), y(ctx).dims());
        const Dims& dims = out(ctx).dims();
        const ResultChannels channels = {dims.empty() ? 1 : dims.back(), 1};
        const absl::StatusOr<PostOps> bound = PostOps::Bind(post_ops, ctx, out(ctx), channels);
        const Products<T> products(
            p.batch, p.x_batch, p.y_batch,
            {TransposeIf(p.trans_x), TransposeIf(p.trans_y), p.m, p.n, p.k, product.alpha},
            bound.ok() ? *bound : PostOps());
        return [=, status = bound.status()](const KernelContext& now) -> absl::Status {
          WEFT_RETURN_IF_ERROR(status);
          return products.Run(now, x.data<T>(now), y.data<T>(now), &out(now));
        };
      });
}

// The gradient of an operand: products for every batch position, summed over broadcast dimensions.
template <typename T>
class Gradient {
 public:
  // For alpha Out@GRAD op(Y)ᵀ, transposed if X is.
  static Gradient OfX(const Product& p, double alpha) {
    constexpr Transpose kNo = Transpose::kNo, kYes = Transpose::kYes;
    const Transpose trans_y = TransposeIf(p.trans_y);
    if (p.trans_x) return {p, p.x_batch, p.y_batch, {trans_y, kYes, p.k, p.m, p.n, alpha}, kSecond};
    return {p, p.x_batch, p.y_batch, {kNo, Flip(trans_y), p.m, p.k, p.n, alpha}, kFirst};
  }
  // For alpha op(X)ᵀ Out@GRAD, transposed if Y is.
  static Gradient OfY(const Product& p, double alpha) {
    constexpr Transpose kNo = Transpose::kNo, kYes = Transpose::kYes;
    const Transpose trans_x = TransposeIf(p.trans_x);
    if (p.trans_y) return {p, p.y_batch, p.x_batch, {kYes, trans_x, p.n, p.k, p.m, alpha}, kFirst};
    return {p, p.y_batch, p.x_batch, {Flip(trans_x), kNo, p.k, p.n, p.m, alpha}, kSecond};
  }

  absl::Status Run(const T* dout, const T* other, Tensor* gradient) {
    const T *first = position_ == kFirst ? dout : other,
            *second = position_ == kFirst ? other : dout;
    if (products_.has_value()) return products_->Run(first, second, gradient->data<T>());
    using Sum = SumOfType<T>;
    scratch_.Resize(DTypeOf<Sum>::value, full_);
    WEFT_RETURN_IF_ERROR(summands_->Run(first, second, scratch_.data<Sum>()));
    if constexpr (std::is_same_v<T, Sum>) {
      SumBroadcast(scratch_.data<T>(), full_, summed_, 1, gradient->data<T>());
    } else {
      sums_.Resize(DTypeOf<Sum>::value, gradient->dims());
      SumBroadcast(scratch_.data<Sum>(), full_, summed_, 1, sums_.data<Sum>());
      ConvertArray(sums_.data<Sum>(), gradient->data<T>(), gradient->size());
    }
    return absl::OkStatus();
  }

 private:
  enum Position { kFirst, kSecond };  // of Out@GRAD in the product

  // `other_batch`: of the other operand. `shape`: of one product.
  Gradient(const Product& p, const Dims& batch, const Dims& other_batch, const GemmShape& shape,
           Position position)
      : position_(position) {
    const Dims& a_batch = position == kFirst ? p.batch : other_batch;
    const Dims& b_batch = position == kFirst ? other_batch : p.batch;
    if (batch == p.batch) {
      products_.emplace(p.batch, a_batch, b_batch, shape);
      return;
    }
    summands_.emplace(p.batch, a_batch, b_batch, shape);
    full_ = p.batch;
    full_.push_back(shape.m * shape.n);
    summed_ = batch;
    summed_.push_back(shape.m * shape.n);
  }

  Position position_;
  absl::optional<Products<T>> products_;                // if nothing is summed
  absl::optional<Products<T, SumOfType<T>>> summands_;  // otherwise
  Dims full_, summed_;                                  // of all products, and of their sums
  Tensor scratch_, sums_;
};

// X@GRAD = alpha Out@GRAD op(Y)ᵀ, Y@GRAD = alpha op(X)ᵀ Out@GRAD; transposed if the operand is.
absl::StatusOr<Kernel> Backward(OpKernel op, const ProductOp& product) {
  const In x = op.in(product.x), y = op.in(product.y), dout = op.in("Out@GRAD");
  const Out dx = op.out(absl::StrCat(product.x, "@GRAD"));
  const Out dy = op.out(absl::StrCat(product.y, "@GRAD"));
  if (HasBFloat16Products()) op.TakesBFloat16({x, y, dout});
  return op.Make(FloatsAndBFloat16(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Product p = product.shape(x(ctx).dims(), y(ctx).dims());
    absl::optional<Gradient<T>> of_x, of_y;
    if (dx.get(ctx) != nullptr) of_x = Gradient<T>::OfX(p, product.alpha);
    if (dy.get(ctx) != nullptr) of_y = Gradient<T>::OfY(p, product.alpha);
    return [=](const KernelContext& now) mutable -> absl::Status {
      const T* douts = dout.data<T>(now);
      if (of_x) WEFT_RETURN_IF_ERROR(of_x->Run(douts, y.data<T>(now), &dx(now)));
      if (of_y) WEFT_RETURN_IF_ERROR(of_y->Run(douts, x.data<T>(now), &dy(now)));
      return absl::OkStatus();
    };
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

// Out = the sums of X Y over the last dimension.
absl::StatusOr<Kernel> Dot(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t width = x(ctx).dims().back();
    const T *xs = x.data<T>(ctx), *ys = y.data<T>(ctx);
    T* to = out.data<T>(ctx);
    for (int64_t row = 0; row < out(ctx).size(); ++row) {
      std::conditional_t<std::is_integral_v<T>, uint64_t, double> sum = 0;
      for (int64_t i = 0; i < width; ++i, ++xs, ++ys) sum += static_cast<decltype(sum)>(*xs) * *ys;
      to[row] = static_cast<T>(sum);
    }
  });
}

absl::StatusOr<Kernel> DotGrad(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t width = x(ctx).dims().back();
    const T* d = dout.data<T>(ctx);
    const auto write = [&](const T* other, T* to) {
      for (int64_t i = 0; to != nullptr && i < x(ctx).size(); ++i) to[i] = d[i / width] * other[i];
    };
    write(y.data<T>(ctx), dx.data_or_null<T>(ctx));
    write(x.data<T>(ctx), dy.data_or_null<T>(ctx));
  });
}

template <typename T>
void Scale(double alpha, Tensor* tensor) {
  if (alpha == 1) return;
  T* values = tensor->data<T>();
  ForEach<T>(tensor->size(), [=](int64_t i) { values[i] *= static_cast<T>(alpha); });
}

// The dims of Input of addmm, as those of a matrix.
Dims AsMatrix(Dims dims) {
  while (dims.size() < 2) dims.insert(dims.begin(), 1);
  return dims;
}

// Out = Alpha X Y + Beta Input.
absl::StatusOr<Kernel> Addmm(OpKernel op) {
  const In input = op.in("Input"), x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const double alpha = op.attrs().Float("Alpha"), beta = op.attrs().Float("Beta");
  return op.Make(Floats(x), [=, gemm = Gemm(Transpose::kNo, Transpose::kNo)](
                                const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    const int64_t m = x(ctx).dim(0), k = x(ctx).dim(1), n = y(ctx).dim(1);
    T* to = out.data<T>(ctx);
    gemm.Run(m, n, k, x.data<T>(ctx), y.data<T>(ctx), to);
    const T* addend = input.data<T>(ctx);
    Walk(MakeLoopNest({m, n}, {m, n}, AsMatrix(input(ctx).dims())),
         [&](int64_t i, int64_t j) { to[i] = static_cast<T>(alpha * to[i] + beta * addend[j]); });
  });
}

absl::StatusOr<Kernel> AddmmGrad(OpKernel op) {
  const In input = op.in("Input"), x = op.in("X"), y = op.in("Y"), dout = op.in("Out@GRAD");
  const Out dinput = op.out("Input@GRAD"), dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const double alpha = op.attrs().Float("Alpha"), beta = op.attrs().Float("Beta");
  return op.Make(Floats(dout), [=, dx_gemm = Gemm(Transpose::kNo, Transpose::kYes),
                                dy_gemm = Gemm(Transpose::kYes, Transpose::kNo)](
                                   const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    const int64_t m = x(ctx).dim(0), k = x(ctx).dim(1), n = y(ctx).dim(1);
    const T* d = dout.data<T>(ctx);
    if (Tensor* gradient = dinput.get(ctx)) {
      SumBroadcast(d, {m, n}, AsMatrix(input(ctx).dims()), 1, gradient->data<T>());
      Scale<T>(beta, gradient);
    }
    if (Tensor* gradient = dx.get(ctx)) {
      dx_gemm.Run(m, k, n, d, y.data<T>(ctx), gradient->data<T>());
      Scale<T>(alpha, gradient);
    }
    if (Tensor* gradient = dy.get(ctx)) {
      dy_gemm.Run(k, n, m, x.data<T>(ctx), d, gradient->data<T>());
      Scale<T>(alpha, gradient);
    }
  });
}

}  // namespace

void AddMatMulKernels(KernelTable* table) {
  AddProduct<Mul>("mul", table);
  AddProduct<MatMul>("matmul", table);
  AddProduct<MatMulV2>("matmul_v2", table);
  AddProduct<Bmm>("bmm", table);
  AddProduct<Mv>("mv", table);
  table->Add("dot", Dot, DotGrad);
  table->Add("addmm", Addmm, AddmmGrad);
}

}  // namespace weft
