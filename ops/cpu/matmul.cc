// Batched matrix products, and ops based on them.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ops/broadcast.h"
#include "ops/cpu/families.h"
#include "ops/cpu/gemm.h"
#include "ops/op_kernel.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

// Out[b] = op(X[b]) op(Y[b]) for every position b of the batch dimensions, in which operands of
// size 1 are broadcast: op(X) is m x k, op(Y) is k x n.
struct Product {
  Dims x_batch, y_batch, batch;  // of one rank
  int64_t m, k, n;
  Transpose trans_x, trans_y;
};

Transpose Flip(Transpose t) { return t == Transpose::kYes ? Transpose::kNo : Transpose::kYes; }
Transpose TransposeIf(bool transposed) { return transposed ? Transpose::kYes : Transpose::kNo; }

// For matmul. A vector is one row on the left, one column on the right, regardless of
// transposition.
Product MatMulProduct(const Dims& x, const Dims& y, bool trans_x, bool trans_y) {
  Product p;
  p.trans_x = TransposeIf(trans_x && x.size() > 1);
  p.trans_y = TransposeIf(trans_y && y.size() > 1);
  const auto matrix = [](const Dims& dims, bool is_left, Transpose transpose) {
    if (dims.size() == 1)
      return is_left ? std::make_pair(int64_t{1}, dims[0]) : std::make_pair(dims[0], int64_t{1});
    std::pair<int64_t, int64_t> shape(dims[dims.size() - 2], dims.back());
    if (transpose == Transpose::kYes) std::swap(shape.first, shape.second);
    return shape;
  };
  std::tie(p.m, p.k) = matrix(x, true, p.trans_x);
  p.n = matrix(y, false, p.trans_y).second;
  if (x.size() > 2) p.x_batch.assign(x.begin(), x.end() - 2);
  if (y.size() > 2) p.y_batch.assign(y.begin(), y.end() - 2);
  const size_t rank = std::max(p.x_batch.size(), p.y_batch.size());
  p.x_batch.insert(p.x_batch.begin(), rank - p.x_batch.size(), 1);
  p.y_batch.insert(p.y_batch.begin(), rank - p.y_batch.size(), 1);
  for (size_t i = 0; i < rank; ++i) {
    p.batch.push_back(p.x_batch[i] == 1 ? p.y_batch[i] : p.x_batch[i]);
  }
  // All rows of X times a single Y are one product.
  if (NumElements(p.y_batch) == 1 && p.trans_x == Transpose::kNo) {
    p.m *= NumElements(p.batch);
    p.x_batch = p.y_batch = p.batch = {};
  }
  return p;
}

// Runs a product for every batch position.
class BatchedGemm {
 public:
  BatchedGemm(Transpose a, Transpose b) : gemm_(a, b) {}

  template <typename T>
  void Run(const Dims& batch, const Dims& a_batch, const Dims& b_batch, int64_t m, int64_t n,
           int64_t k, const T* a, const T* b, T* c) {
    Walk(MakeLoopNest(batch, a_batch, b_batch), [&](int64_t i, int64_t j) {
      gemm_.Run(m, n, k, a + i * m * k, b + j * k * n, c);
      c += m * n;
    });
  }

 private:
  Gemm gemm_;
};

template <typename T>
void Scale(double alpha, Tensor* tensor) {
  if (alpha == 1) return;
  T* values = tensor->data<T>();
  ForEach<T>(tensor->size(), [=](int64_t i) { values[i] *= static_cast<T>(alpha); });
}

// The operands of an op: their slots, and how they are multiplied.
struct ProductOp {
  const char* x = "X";
  const char* y = "Y";
  std::function<Product(const Dims& x, const Dims& y)> shape;
  double alpha = 1;
};

// Out = alpha X Y.
absl::StatusOr<Kernel> Forward(OpKernel op, const ProductOp& product) {
  const In x = op.in(product.x), y = op.in(product.y);
  const Out out = op.out("Out");
  const Product fixed = product.shape({1, 1}, {1, 1});  // for its transpositions
  return op.Make(Floats(x), [=, gemm = BatchedGemm(fixed.trans_x, fixed.trans_y)](
                                const KernelContext& ctx, auto zero) mutable {
    using T = decltype(zero);
    const Product p = product.shape(x(ctx).dims(), y(ctx).dims());
    gemm.Run(p.batch, p.x_batch, p.y_batch, p.m, p.n, p.k, x.data<T>(ctx), y.data<T>(ctx),
             out.data<T>(ctx));
    Scale<T>(product.alpha, &out(ctx));
  });
}

// Writes the gradient of an operand, computed for every batch position and summed over broadcast
// dimensions.
template <typename T, typename Run>
void WriteGradient(const Product& p, const Dims& operand_batch, int64_t matrix_size,
                   Tensor* scratch, Tensor* gradient, Run run) {
  if (operand_batch == p.batch) return run(gradient->data<T>());
  Dims full = p.batch, summed = operand_batch;
  full.push_back(matrix_size);
  summed.push_back(matrix_size);
  scratch->Resize(gradient->dtype(), full);
  run(scratch->data<T>());
  SumBroadcast(scratch->data<T>(), full, summed, 1, gradient->data<T>());
}

// X@GRAD = alpha Out@GRAD op(Y)ᵀ, Y@GRAD = alpha op(X)ᵀ Out@GRAD; transposed if the operand is.
absl::StatusOr<Kernel> Backward(OpKernel op, const ProductOp& product) {
  const In x = op.in(product.x), y = op.in(product.y), dout = op.in("Out@GRAD");
  const Out dx = op.out(absl::StrCat(product.x, "@GRAD"));
  const Out dy = op.out(absl::StrCat(product.y, "@GRAD"));
  const auto gemms = std::make_shared<std::array<std::unique_ptr<BatchedGemm>, 2>>();
  const auto gemm = [gemms](int which, Transpose a, Transpose b) -> BatchedGemm& {
    std::unique_ptr<BatchedGemm>& made = (*gemms)[which];
    if (made == nullptr) made = std::make_unique<BatchedGemm>(a, b);
    return *made;
  };
  return op.Make(Floats(dout), [=, scratch = Tensor()](const KernelContext& ctx,
                                                       auto zero) mutable {
    using T = decltype(zero);
    constexpr Transpose kNo = Transpose::kNo, kYes = Transpose::kYes;
    const Product p = product.shape(x(ctx).dims(), y(ctx).dims());
    const T *xs = x.data<T>(ctx), *ys = y.data<T>(ctx), *douts = dout.data<T>(ctx);
    if (Tensor* gradient = dx.get(ctx)) {
      WriteGradient<T>(p, p.x_batch, p.m * p.k, &scratch, gradient, [&](T* to) {
        if (p.trans_x == kNo) {
          gemm(0, kNo, Flip(p.trans_y))
              .Run(p.batch, p.batch, p.y_batch, p.m, p.k, p.n, douts, ys, to);
        } else {
          gemm(0, p.trans_y, kYes).Run(p.batch, p.y_batch, p.batch, p.k, p.m, p.n, ys, douts, to);
        }
      });
      Scale<T>(product.alpha, gradient);
    }
    if (Tensor* gradient = dy.get(ctx)) {
      WriteGradient<T>(p, p.y_batch, p.k * p.n, &scratch, gradient, [&](T* to) {
        if (p.trans_y == kNo) {
          gemm(1, Flip(p.trans_x), kNo)
              .Run(p.batch, p.x_batch, p.batch, p.k, p.n, p.m, xs, douts, to);
        } else {
          gemm(1, kYes, p.trans_x).Run(p.batch, p.batch, p.x_batch, p.n, p.k, p.m, douts, xs, to);
        }
      });
      Scale<T>(product.alpha, gradient);
    }
  });
}

ProductOp Transposing(bool trans_x, bool trans_y) {
  ProductOp product;
  product.shape = [=](const Dims& x, const Dims& y) {
    return MatMulProduct(x, y, trans_x, trans_y);
  };
  return product;
}

ProductOp MatMulV2(const KernelSpec& spec) {
  return Transposing(spec.attrs.Bool("trans_x"), spec.attrs.Bool("trans_y"));
}

ProductOp MatMul(const KernelSpec& spec) {
  ProductOp product = Transposing(spec.attrs.Bool("transpose_X"), spec.attrs.Bool("transpose_Y"));
  product.alpha = spec.attrs.Float("alpha");
  return product;
}

ProductOp Bmm(const KernelSpec&) { return Transposing(false, false); }

ProductOp Mv(const KernelSpec& spec) {
  ProductOp product = Bmm(spec);
  product.y = "Vec";
  return product;
}

// X as a matrix whose rows are its first x_num_col_dims dimensions, Y likewise.
ProductOp Mul(const KernelSpec& spec) {
  const int64_t x_rows = spec.attrs.Int("x_num_col_dims");
  const int64_t y_rows = spec.attrs.Int("y_num_col_dims");
  ProductOp product;
  product.shape = [=](const Dims& x, const Dims& y) {
    const auto xs = absl::MakeConstSpan(x), ys = absl::MakeConstSpan(y);
    Product p;
    p.trans_x = p.trans_y = Transpose::kNo;
    p.m = NumElements(xs.first(std::min<size_t>(x_rows, xs.size())));
    p.k = NumElements(ys.first(std::min<size_t>(y_rows, ys.size())));
    p.n = NumElements(ys.subspan(std::min<size_t>(y_rows, ys.size())));
    return p;
  };
  return product;
}

template <ProductOp (*product)(const KernelSpec&)>
void AddProduct(const char* type, KernelTable* table) {
  table->Add(
      type, [](const KernelSpec& spec) { return Forward(spec, product(spec)); },
      [](const KernelSpec& spec) { return Backward(spec, product(spec)); });
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
