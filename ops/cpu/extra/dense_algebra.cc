// Inverses, determinants, factors and solutions of square matrices, [..., n, n], products of
// matrices, and factors of any, by Eigen, in double precision. Gradients: M. B. Giles, "Collected
// matrix derivative results for forward and reverse mode algorithmic differentiation" (2008), and
// I. Murray, "Differentiation of the Cholesky decomposition" (2016).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <eigen3/Eigen/Cholesky>
#include <eigen3/Eigen/Core>
#include <eigen3/Eigen/LU>
#include <eigen3/Eigen/QR>
#include <eigen3/Eigen/SVD>
#include <functional>
#include <vector>

#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

template <typename T>
using MatrixOf = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Matrix = MatrixOf<double>;

// Matrix number `which` of the row-major matrices in `all`.
template <typename T>
Matrix ReadMatrix(const T* all, int64_t which, int64_t rows, int64_t columns) {
  const T* from = all + which * rows * columns;
  return Eigen::Map<const MatrixOf<T>>(from, rows, columns).template cast<double>();
}

// The tensor, of rank 2.
template <typename T>
Matrix ReadMatrix(const Tensor& tensor) {
  return ReadMatrix(tensor.data<T>(), 0, tensor.dim(0), tensor.dim(1));
}

template <typename T>
void WriteMatrix(const Matrix& matrix, int64_t which, T* all) {
  Eigen::Map<MatrixOf<T>>(all + which * matrix.size(), matrix.rows(), matrix.cols()) =
      matrix.cast<T>();
}

using Lu = Eigen::PartialPivLU<Matrix>;

// Take matrices, not Eigen's expressions, so that the compiler does not instantiate every
// combination.
Matrix Product(const Matrix& a, const Matrix& b) { return a * b; }
Matrix Transposed(const Matrix& a) { return a.transpose(); }

// False if an element is 0 or NaN: then a triangular matrix has no inverse.
template <typename Diagonal>
bool IsRegular(const Diagonal& diagonal) {
  return (diagonal.array().abs() > 0).all();
}

absl::optional<Matrix> Inverted(const Matrix& a) {
  const Lu lu(a);
  if (!IsRegular(lu.matrixLU().diagonal())) return absl::nullopt;
  return Matrix(lu.inverse());
}

// The lower or upper triangle, 0 elsewhere.
Matrix Triangle(const Matrix& a, Eigen::UpLoType which) {
  if (which == Eigen::Lower) return a.triangularView<Eigen::Lower>();
  return a.triangularView<Eigen::Upper>();
}

// The solution of T x = b for a triangle T of a.
absl::optional<Matrix> SolveTriangular(const Matrix& a, Eigen::UpLoType which, const Matrix& b) {
  if (!IsRegular(a.diagonal())) return absl::nullopt;
  if (which == Eigen::Lower) return Matrix(a.triangularView<Eigen::Lower>().solve(b));
  return Matrix(a.triangularView<Eigen::Upper>().solve(b));
}

absl::Status Problem(const char* slot, int64_t which, const char* problem = "singular") {
  return absl::InvalidArgumentError(
      absl::StrCat("input ", slot, ": matrix ", which, " is ", problem));
}

// Calls visit(index, matrix) for the square matrices of a tensor.
template <typename T, typename Visit>
absl::Status ForEachMatrix(const Tensor& tensor, Visit visit) {
  const int64_t n = tensor.dims().back();
  const int64_t count = n == 0 ? 0 : tensor.size() / (n * n);
  for (int64_t which = 0; which < count; ++which) {
    WEFT_RETURN_IF_ERROR(CallForStatus(visit, which, ReadMatrix(tensor.data<T>(), which, n, n)));
  }
  return absl::OkStatus();
}

// --- Inverse -------------------------------------------------------------------------------------

// Maps the matrices at one position of all inputs to one of the output; none is an error.
using MatrixFn = std::function<absl::optional<Matrix>(const std::vector<Matrix>&)>;

absl::StatusOr<Kernel> MapMatrices(const KernelSpec& spec, const std::vector<const char*>& inputs,
                                   const char* output, const char* problem, const MatrixFn& map) {
  OpKernel op(spec);
  std::vector<In> in;
  for (const char* slot : inputs) in.push_back(op.in(slot));
  const Out out = op.out(output);
  return op.Make(Floats(in[0]), [=, slot = inputs[0]](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEachMatrix<T>(in[0](ctx), [&](int64_t which, const Matrix& first) -> absl::Status {
      std::vector<Matrix> matrices = {first};
      for (size_t i = 1; i < in.size(); ++i) {
        matrices.push_back(ReadMatrix(in[i].data<T>(ctx), which, first.rows(), first.rows()));
      }
      const absl::optional<Matrix> result = map(matrices);
      if (!result.has_value()) return Problem(slot, which, problem);
      WriteMatrix(*result, which, out.data<T>(ctx));
      return absl::OkStatus();
    });
  });
}

absl::StatusOr<Kernel> Inverse(const KernelSpec& spec) {
  return MapMatrices(spec, {"Input"}, "Output", "singular",
                     [](const std::vector<Matrix>& in) { return Inverted(in[0]); });
}

// Input@GRAD = -Outputᵀ Output@GRAD Outputᵀ.
absl::StatusOr<Kernel> InverseGrad(const KernelSpec& spec) {
  return MapMatrices(spec, {"Output", "Output@GRAD"}, "Input@GRAD", "",
                     [](const std::vector<Matrix>& in) -> absl::optional<Matrix> {
                       const Matrix yt = Transposed(in[0]);
                       return Matrix(-Product(Product(yt, in[1]), yt));
                     });
}

// --- Determinant ---------------------------------------------------------------------------------

Dims BatchOf(const Tensor& matrices) {
  return Dims(matrices.dims().begin(), matrices.dims().end() - 2);
}

absl::StatusOr<Kernel> Determinant(OpKernel op) {
  const In x = op.in("Input");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    out(ctx).Resize(x(ctx).dtype(), BatchOf(x(ctx)));
    std::fill_n(out.data<T>(ctx), out(ctx).size(), T(1));  // of matrices without elements
    return ForEachMatrix<T>(x(ctx), [&](int64_t which, const Matrix& a) {
      out.data<T>(ctx)[which] = static_cast<T>(Lu(a).determinant());
    });
  });
}

// The derivative of the determinant: det(A) A⁻ᵀ or, if A is singular, its limit. With A = U S Vᵀ it
// is det(U V) U C Vᵀ, where C has the products of all singular values but one (G. W. Stewart, "On
// the adjugate matrix", 1998).
Matrix DeterminantDerivative(const Matrix& a) {
  const Lu lu(a);
  if (IsRegular(lu.matrixLU().diagonal())) return lu.determinant() * lu.inverse().transpose();
  if (!a.allFinite()) return Matrix::Constant(a.rows(), a.cols(), NAN);
  const Eigen::JacobiSVD<Matrix, Eigen::NoQRPreconditioner> svd(
      a, Eigen::ComputeFullU | Eigen::ComputeFullV);
  // Values below the rounding error of the largest one become 0: then products of two are exact.
  const Eigen::VectorXd values =
      (svd.singularValues().array() > svd.threshold() * svd.singularValues()[0])
          .select(svd.singularValues(), 0.0);
  Eigen::VectorXd products(a.rows());
  for (int64_t i = 0; i < a.rows(); ++i) {
    Eigen::VectorXd others = values;
    others[i] = 1;
    products[i] = others.prod();
  }
  const Matrix &u = svd.matrixU(), &v = svd.matrixV();
  return Lu(u).determinant() * Lu(v).determinant() *
         Product(u * products.asDiagonal(), Transposed(v));
}

// Input@GRAD = Out@GRAD Out Input⁻ᵀ, with its limit where Input is singular. Paddle's CPU
// kernel gives 0 for all matrices if one is singular.
absl::StatusOr<Kernel> DeterminantGrad(OpKernel op) {
  const In x = op.in("Input"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("Input@GRAD");
  const bool quirks = op.spec().paddle_cpu_quirks;
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_RETURN_IF_ERROR(CheckSize("Out", out(ctx), NumElements(BatchOf(x(ctx)))));
    WEFT_RETURN_IF_ERROR(CheckSize("Out@GRAD", dout(ctx), out(ctx).size()));
    const T *ys = out.data<T>(ctx), *dys = dout.data<T>(ctx);
    if (quirks && std::count(ys, ys + out(ctx).size(), T(0)) > 0) {
      std::fill_n(dx.data<T>(ctx), dx(ctx).size(), T(0));
      return absl::OkStatus();
    }
    return ForEachMatrix<T>(x(ctx), [&](int64_t which, const Matrix& a) {
      WriteMatrix(double{dys[which]} * DeterminantDerivative(a), which, dx.data<T>(ctx));
    });
  });
}

// Out = the signs of all determinants, then the logarithms of their sizes.
absl::StatusOr<Kernel> SlogDeterminant(OpKernel op) {
  const In x = op.in("Input");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    Dims dims = BatchOf(x(ctx));
    const int64_t count = NumElements(dims);
    dims.insert(dims.begin(), 2);
    out(ctx).Resize(x(ctx).dtype(), dims);
    T *signs = out.data<T>(ctx), *logs = signs + count;
    std::fill_n(signs, count, T(1));
    std::fill_n(logs, count, T(0));
    return ForEachMatrix<T>(x(ctx), [&](int64_t which, const Matrix& a) {
      const Lu lu(a);
      const Eigen::VectorXd u = lu.matrixLU().diagonal();
      const auto sign = [](double x) { return x > 0 ? 1 : x < 0 ? -1 : x; };
      const auto log = [](double x) { return std::log(std::fabs(x)); };
      signs[which] = static_cast<T>(lu.permutationP().determinant() * u.unaryExpr(sign).prod());
      logs[which] = static_cast<T>(u.unaryExpr(log).sum());
    });
  });
}

// Input@GRAD = Out@GRAD Input⁻ᵀ, with the gradient of the logarithm.
absl::StatusOr<Kernel> SlogDeterminantGrad(OpKernel op) {
  op.Ignore({"Out"});
  const In x = op.in("Input"), dout = op.in("Out@GRAD");
  const Out dx = op.out("Input@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_RETURN_IF_ERROR(CheckSize("Out@GRAD", dout(ctx), 2 * NumElements(BatchOf(x(ctx)))));
    const T* dlogs = dout.data<T>(ctx) + dout(ctx).size() / 2;
    return ForEachMatrix<T>(x(ctx), [&](int64_t which, const Matrix& a) -> absl::Status {
      const absl::optional<Matrix> inverse = Inverted(a);
      if (!inverse.has_value()) return Problem("Input", which);
      WriteMatrix(double{dlogs[which]} * inverse->transpose(), which, dx.data<T>(ctx));
      return absl::OkStatus();
    });
  });
}

// --- Cholesky ------------------------------------------------------------------------------------

// Out = L with L Lᵀ = X or, if `upper`, Lᵀ. Reads only one triangle of X.
absl::StatusOr<Kernel> Cholesky(const KernelSpec& spec) {
  const bool upper = spec.attrs.Bool("upper");
  return MapMatrices(spec, {"X"}, "Out", "not positive definite",
                     [=](const std::vector<Matrix>& in) -> absl::optional<Matrix> {
                       const Eigen::LLT<Matrix> llt(upper ? Transposed(in[0]) : in[0]);
                       const Matrix l = llt.matrixL();
                       const bool is_factor = (l.diagonal().array() > 0).all();  // of numbers
                       if (llt.info() != Eigen::Success || !is_factor) return absl::nullopt;
                       return upper ? Transposed(l) : l;
                     });
}

// X@GRAD = (S + Sᵀ) / 2 with S = L⁻ᵀ P L⁻¹, where P is the lower triangle, with half the diagonal,
// of Lᵀ L@GRAD.
absl::StatusOr<Kernel> CholeskyGrad(const KernelSpec& spec) {
  const bool upper = spec.attrs.Bool("upper");
  return MapMatrices(spec, {"Out", "Out@GRAD"}, "X@GRAD", "singular",
                     [=](const std::vector<Matrix>& in) -> absl::optional<Matrix> {
                       const Matrix lt = upper ? in[0] : Transposed(in[0]);
                       const Matrix dl = Triangle(upper ? Transposed(in[1]) : in[1], Eigen::Lower);
                       Matrix p = Triangle(Product(lt, dl), Eigen::Lower);
                       p.diagonal() /= 2;
                       const absl::optional<Matrix> half = SolveTriangular(lt, Eigen::Upper, p);
                       if (!half.has_value()) return absl::nullopt;
                       const Matrix s = *SolveTriangular(lt, Eigen::Upper, half->transpose());
                       return Matrix((s + s.transpose()) / 2);
                     });
}

// --- Products ------------------------------------------------------------------------------------

// A vector is a row as first factor, a column as last one.
template <typename T>
std::vector<Matrix> ReadFactors(const In& x, const KernelContext& ctx) {
  std::vector<Matrix> factors;
  for (int i = 0; i < x.count(); ++i) {
    const Dims& dims = x(ctx, i).dims();
    const bool is_row = dims.size() == 1 && i == 0;
    const int64_t columns = dims.size() == 2 ? dims[1] : is_row ? dims[0] : 1;
    factors.push_back(ReadMatrix(x.data<T>(ctx, i), 0, is_row ? 1 : dims[0], columns));
  }
  return factors;
}

// Out = X[0] X[1] ..., from the left.
absl::StatusOr<Kernel> MultiDot(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const std::vector<Matrix> factors = ReadFactors<T>(x, ctx);
    Matrix product = factors[0];
    for (size_t i = 1; i < factors.size(); ++i) product = Product(product, factors[i]);
    WriteMatrix(product, 0, out.data<T>(ctx));
  });
}

// X@GRAD[i] = (the product of earlier factors)ᵀ Out@GRAD (the product of later ones)ᵀ.
absl::StatusOr<Kernel> MultiDotGrad(OpKernel op) {
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const std::vector<Matrix> factors = ReadFactors<T>(x, ctx);
    std::vector<Matrix> before = {Matrix::Identity(factors[0].rows(), factors[0].rows())};
    for (const Matrix& factor : factors) before.push_back(Product(before.back(), factor));
    Matrix grad = ReadMatrix(dout.data<T>(ctx), 0, factors.front().rows(), factors.back().cols());
    for (int i = x.count() - 1; i >= 0; --i) {
      if (Tensor* to = dx.get(ctx, i)) {
        WriteMatrix(Product(Transposed(before[i]), grad), 0, to->data<T>());
      }
      grad = Product(grad, Transposed(factors[i]));
    }
  });
}

// The slices Weight[k].
template <typename T>
Matrix Slice(const Tensor& weight, int64_t k) {
  return ReadMatrix(weight.data<T>(), k, weight.dim(1), weight.dim(2));
}

// Out[b, k] = X[b] Weight[k] Y[b]ᵀ + Bias[k].
absl::StatusOr<Kernel> Bilinear(OpKernel op) {
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
absl::StatusOr<Kernel> BilinearGrad(OpKernel op) {
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

// --- Systems of equations ------------------------------------------------------------------------

// Systems solve equations with matrix `a` and right sides b, and those with the transposed matrix.
// MatrixGrad maps the gradient of the system's matrix to that of `a`.

struct GeneralSystem {
  static constexpr const char *kMatrix = "X", *kRight = "Y";
  static constexpr bool kMayBeVectors = true;  // right sides
  explicit GeneralSystem(const KernelSpec&) {}

  absl::optional<Matrix> Solve(const Matrix& a, const Matrix& b) const {
    const Lu lu(a);
    if (!IsRegular(lu.matrixLU().diagonal())) return absl::nullopt;
    return Matrix(lu.solve(b));
  }
  absl::optional<Matrix> SolveTransposed(const Matrix& a, const Matrix& b) const {
    return Solve(a.transpose(), b);
  }
  Matrix MatrixGrad(const Matrix&, const Matrix& grad) const { return grad; }
};

struct TriangularSystem {
  static constexpr const char *kMatrix = "X", *kRight = "Y";
  static constexpr bool kMayBeVectors = false;
  bool upper, transpose, unit, quirks;
  explicit TriangularSystem(const KernelSpec& spec)
      : upper(spec.attrs.Bool("upper")),
        transpose(spec.attrs.Bool("transpose")),
        unit(spec.attrs.Bool("unitriangular")),
        quirks(spec.paddle_cpu_quirks) {}

  // op(a) of a triangle, with a diagonal of 1 if `unit`.
  Matrix Coefficients(const Matrix& a) const {
    Matrix triangle = Triangle(a, upper ? Eigen::Upper : Eigen::Lower);
    if (unit) triangle.diagonal().setOnes();
    return transpose ? Transposed(triangle) : triangle;
  }
  absl::optional<Matrix> Solve(const Matrix& a, const Matrix& b) const {
    return SolveTriangular(Coefficients(a), upper != transpose ? Eigen::Upper : Eigen::Lower, b);
  }
  absl::optional<Matrix> SolveTransposed(const Matrix& a, const Matrix& b) const {
    return SolveTriangular(Transposed(Coefficients(a)),
                           upper != transpose ? Eigen::Lower : Eigen::Upper, b);
  }
  // Paddle's CPU kernel keeps the gradients of a lower matrix's unit diagonal and of the one above.
  Matrix MatrixGrad(const Matrix&, const Matrix& grad) const {
    const Matrix full = transpose ? Transposed(grad) : grad;
    Matrix result = Triangle(full, upper ? Eigen::Upper : Eigen::Lower);
    if (quirks && unit && !upper) {
      if (full.rows() > 1) result.diagonal(1) = full.diagonal(1);
    } else if (unit) {
      result.diagonal().setZero();
    }
    return result;
  }
};

// The matrix is L Lᵀ or, of an upper triangle U, Uᵀ U.
struct CholeskySystem {
  static constexpr const char *kMatrix = "Y", *kRight = "X";
  static constexpr bool kMayBeVectors = false;
  bool upper, quirks;
  explicit CholeskySystem(const KernelSpec& spec)
      : upper(spec.attrs.Bool("upper")), quirks(spec.paddle_cpu_quirks) {}

  absl::optional<Matrix> Solve(const Matrix& a, const Matrix& b) const {
    const Matrix l = upper ? Transposed(a) : a;
    const absl::optional<Matrix> half = SolveTriangular(l, Eigen::Lower, b);
    if (!half.has_value()) return half;
    return SolveTriangular(l.transpose(), Eigen::Upper, *half);
  }
  absl::optional<Matrix> SolveTransposed(const Matrix& a, const Matrix& b) const {
    return Solve(a, b);
  }
  // Paddle's CPU kernel also reads the other triangle of the factor.
  Matrix MatrixGrad(const Matrix& a, const Matrix& grad) const {
    const Eigen::UpLoType which = upper ? Eigen::Upper : Eigen::Lower;
    const Matrix both = grad + grad.transpose(), triangle = quirks ? a : Triangle(a, which);
    return Triangle(upper ? Product(triangle, both) : Product(both, triangle), which);
  }
};

// Matrices [..., n, n] and right sides [..., n, columns], whose leading dimensions broadcast; or
// right sides [n], or [..., n] with all dimensions of the matrices but the last.
struct Systems {
  int64_t n, columns;
  Dims matrices, rights;

  Systems(const Dims& a, const Dims& b, bool may_be_vectors)
      : n(a.back()), matrices(a.begin(), a.end() - 2) {
    const bool vectors = may_be_vectors && (b.size() == 1 || b == Dims(a.begin(), a.end() - 1));
    columns = vectors ? 1 : b.back();
    rights.assign(b.begin(), b.end() - (vectors ? 1 : 2));
  }

  // Calls visit(index in the result, of the matrix, of the right sides) up to the first error.
  template <typename Visit>
  absl::Status ForEach(Visit visit) const {
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(matrices, rights, -1));
    absl::Status status;
    int64_t place = 0;
    Walk(MakeLoopNest(shapes.out, shapes.x, shapes.y), [&](int64_t a, int64_t b) {
      if (status.ok()) status = visit(place++, a, b);
    });
    return status;
  }
};

// Out = the solutions.
template <typename System>
absl::StatusOr<Kernel> Solve(OpKernel op) {
  const In matrix = op.in(System::kMatrix), right = op.in(System::kRight);
  const Out out = op.out("Out");
  const System system(op.spec());
  return op.Make(Floats(matrix), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Systems all(matrix(ctx).dims(), right(ctx).dims(), System::kMayBeVectors);
    return all.ForEach([&](int64_t place, int64_t a, int64_t b) -> absl::Status {
      const absl::optional<Matrix> x =
          system.Solve(ReadMatrix(matrix.data<T>(ctx), a, all.n, all.n),
                       ReadMatrix(right.data<T>(ctx), b, all.n, all.columns));
      if (!x.has_value()) return Problem(System::kMatrix, a);
      WriteMatrix(*x, place, out.data<T>(ctx));
      return absl::OkStatus();
    });
  });
}

// The gradient of the right sides is the solution D of the transposed system for Out@GRAD, that of
// the matrix -D Outᵀ; each summed over broadcast dimensions.
template <typename System>
absl::StatusOr<Kernel> SolveGrad(OpKernel op) {
  const In matrix = op.in(System::kMatrix), right = op.in(System::kRight);
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dmatrix = op.out(absl::StrCat(System::kMatrix, "@GRAD"));
  const Out dright = op.out(absl::StrCat(System::kRight, "@GRAD"));
  const System system(op.spec());
  return op.Make(Floats(matrix), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Systems all(matrix(ctx).dims(), right(ctx).dims(), System::kMayBeVectors);
    const int64_t n = all.n, columns = all.columns;
    std::vector<double> matrix_sums(matrix(ctx).size(), 0.0), right_sums(right(ctx).size(), 0.0);
    const auto add = [](const Matrix& grad, int64_t which, std::vector<double>* sums) {
      Eigen::Map<Matrix>(sums->data() + which * grad.size(), grad.rows(), grad.cols()) += grad;
    };
    WEFT_RETURN_IF_ERROR(all.ForEach([&](int64_t place, int64_t a, int64_t b) -> absl::Status {
      const Matrix coefficients = ReadMatrix(matrix.data<T>(ctx), a, n, n);
      const Matrix x = ReadMatrix(out.data<T>(ctx), place, n, columns);
      const absl::optional<Matrix> d =
          system.SolveTransposed(coefficients, ReadMatrix(dout.data<T>(ctx), place, n, columns));
      if (!d.has_value()) return Problem(System::kMatrix, a);
      add(*d, b, &right_sums);
      add(system.MatrixGrad(coefficients, -Product(*d, Transposed(x))), a, &matrix_sums);
      return absl::OkStatus();
    }));
    if (T* to = dmatrix.data_or_null<T>(ctx)) std::copy(matrix_sums.begin(), matrix_sums.end(), to);
    if (T* to = dright.data_or_null<T>(ctx)) std::copy(right_sums.begin(), right_sums.end(), to);
    return absl::OkStatus();
  });
}

// --- QR ------------------------------------------------------------------------------------------

// By Householder reflections, as LAPACK: columns of Q are orthonormal for any X, also for zeros.
absl::StatusOr<Kernel> Qr(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out q = op.out("Q"), r = op.out("R");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims& dims = x(ctx).dims();
    const int64_t rows = dims[dims.size() - 2], columns = dims.back();
    const int64_t common = std::min(rows, columns);
    const int64_t count = x(ctx).size() == 0 ? 0 : x(ctx).size() / (rows * columns);
    for (int64_t which = 0; which < count; ++which) {
      const Eigen::HouseholderQR<Matrix> qr(ReadMatrix(x.data<T>(ctx), which, rows, columns));
      const Matrix thin = Matrix::Identity(rows, common);
      WriteMatrix(Matrix(qr.householderQ() * thin), which, q.data<T>(ctx));
      WriteMatrix(Triangle(qr.matrixQR().topRows(common), Eigen::Upper), which, r.data<T>(ctx));
    }
    return absl::OkStatus();
  });
}

}  // namespace

void AddDenseAlgebraKernels(KernelTable* table) {
  table->Add("inverse", Inverse);
  table->Add("inverse_grad", InverseGrad);
  table->Add("determinant", Determinant);
  table->Add("determinant_grad", DeterminantGrad);
  table->Add("slogdeterminant", SlogDeterminant);
  table->Add("slogdeterminant_grad", SlogDeterminantGrad);
  table->Add("cholesky", Cholesky);
  table->Add("cholesky_grad", CholeskyGrad);
  table->Add("bilinear_tensor_product", Bilinear);
  table->Add("bilinear_tensor_product_grad", BilinearGrad);
  table->Add("multi_dot", MultiDot);
  table->Add("multi_dot_grad", MultiDotGrad);
  table->Add("qr", Qr);
  table->Add("solve", Solve<GeneralSystem>);
  table->Add("solve_grad", SolveGrad<GeneralSystem>);
  table->Add("triangular_solve", Solve<TriangularSystem>);
  table->Add("triangular_solve_grad", SolveGrad<TriangularSystem>);
  table->Add("cholesky_solve", Solve<CholeskySystem>);
  table->Add("cholesky_solve_grad", SolveGrad<CholeskySystem>);
}

}  // namespace weft
