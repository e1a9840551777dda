// Inverses, determinants, factors and solutions of small matrices, [..., n, n], in double precision
// and plain loops: O(n³) for each.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- Matrices ------------------------------------------------------------------------------------

struct Matrix {
  int64_t rows, columns;
  std::vector<double> values;

  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(r * c, 0.0) {}
  // The one at place `which` of many.
  template <typename T>
  Matrix(const T* all, int64_t which, int64_t r, int64_t c)
      : rows(r), columns(c), values(all + which * r * c, all + (which + 1) * r * c) {}

  double& operator()(int64_t i, int64_t j) { return values[i * columns + j]; }
  double operator()(int64_t i, int64_t j) const { return values[i * columns + j]; }

  template <typename T>
  void WriteTo(T* all, int64_t which) const {
    std::transform(values.begin(), values.end(), all + which * rows * columns,
                   [](double value) { return static_cast<T>(value); });
  }
};

Matrix Identity(int64_t n) {
  Matrix result(n, n);
  for (int64_t i = 0; i < n; ++i) result(i, i) = 1;
  return result;
}

Matrix Transposed(const Matrix& a) {
  Matrix result(a.columns, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.columns; ++j) result(j, i) = a(i, j);
  }
  return result;
}

Matrix Product(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t k = 0; k < a.columns; ++k) {
      for (int64_t j = 0; j < b.columns; ++j) result(i, j) += a(i, k) * b(k, j);
    }
  }
  return result;
}

// a + scale b
Matrix Sum(Matrix a, const Matrix& b, double scale = 1) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] += scale * b.values[i];
  return a;
}

Matrix Scaled(Matrix a, double scale) {
  for (double& value : a.values) value *= scale;
  return a;
}

// 0 above the diagonal, or below it; the diagonal scaled.
Matrix Triangle(Matrix a, bool lower, double diagonal = 1) {
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.columns; ++j) {
      if (i == j) {
        a(i, j) *= diagonal;
      } else if ((j < i) != lower) {
        a(i, j) = 0;
      }
    }
  }
  return a;
}

// The solution of a x = b, of which only the lower, or upper, triangle of a is read, and, where
// `unit`, its diagonal is 1. None where there is a 0 in the diagonal.
absl::optional<Matrix> SolveTriangular(const Matrix& a, bool lower, bool unit, Matrix b) {
  const int64_t n = a.rows;
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = lower ? step : n - 1 - step;
    if (!unit && !(std::fabs(a(i, i)) > 0)) return absl::nullopt;
    for (int64_t k = lower ? 0 : i + 1; k < (lower ? i : n); ++k) {
      for (int64_t j = 0; j < b.columns; ++j) b(i, j) -= a(i, k) * b(k, j);
    }
    for (int64_t j = 0; !unit && j < b.columns; ++j) b(i, j) /= a(i, i);
  }
  return b;
}

// The factors of a matrix with rows in another order: L, below the diagonal, of 1 on it, times U.
class Factors {
 public:
  explicit Factors(Matrix a) : lu_(std::move(a)), order_(lu_.rows) {
    std::iota(order_.begin(), order_.end(), 0);
    const int64_t n = lu_.rows;
    for (int64_t k = 0; k < n; ++k) {
      int64_t pivot = k;
      for (int64_t i = k + 1; i < n; ++i) {
        if (std::fabs(lu_(i, k)) > std::fabs(lu_(pivot, k))) pivot = i;
      }
      if (pivot != k) {
        for (int64_t j = 0; j < n; ++j) std::swap(lu_(k, j), lu_(pivot, j));
        std::swap(order_[k], order_[pivot]);
        sign_ = -sign_;
      }
      if (lu_(k, k) == 0) continue;
      for (int64_t i = k + 1; i < n; ++i) {
        lu_(i, k) /= lu_(k, k);
        for (int64_t j = k + 1; j < n; ++j) lu_(i, j) -= lu_(i, k) * lu_(k, j);
      }
    }
  }

  double Determinant() const {
    double product = sign_;
    for (int64_t i = 0; i < lu_.rows; ++i) product *= lu_(i, i);
    return product;
  }
  // The sign of the determinant, and the logarithm of its size.
  std::pair<double, double> SignAndLog() const {
    double sign = sign_, log = 0;
    for (int64_t i = 0; i < lu_.rows; ++i) {
      const double u = lu_(i, i);
      sign *= u > 0 ? 1 : u < 0 ? -1 : u;
      log += std::log(std::fabs(u));
    }
    return {sign, log};
  }
  // The solution of the matrix times x = b; none where the matrix is singular.
  absl::optional<Matrix> Solve(const Matrix& b) const {
    Matrix x(b.rows, b.columns);
    for (int64_t i = 0; i < b.rows; ++i) {
      for (int64_t j = 0; j < b.columns; ++j) x(i, j) = b(order_[i], j);
    }
    x = *SolveTriangular(lu_, /*lower=*/true, /*unit=*/true, std::move(x));
    return SolveTriangular(lu_, /*lower=*/false, /*unit=*/false, std::move(x));
  }
  absl::optional<Matrix> Inverse() const { return Solve(Identity(lu_.rows)); }

 private:
  Matrix lu_;
  std::vector<int64_t> order_;
  double sign_ = 1;
};

absl::Status Singular(const char* slot, int64_t which) {
  return absl::InvalidArgumentError(
      absl::StrCat("input ", slot, ": matrix ", which, " is singular"));
}

// Calls visit(place, matrix) for the square matrices of a tensor.
template <typename T, typename Visit>
absl::Status ForEachMatrix(const Tensor& tensor, Visit visit) {
  const int64_t n = tensor.dims().back();
  const int64_t count = n == 0 ? 0 : tensor.size() / (n * n);
  for (int64_t which = 0; which < count; ++which) {
    WEFT_RETURN_IF_ERROR(CallForStatus(visit, which, Matrix(tensor.data<T>(), which, n, n)));
  }
  return absl::OkStatus();
}

// --- Inverse -------------------------------------------------------------------------------------

absl::StatusOr<Kernel> Inverse(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("Input");
  const Out out = op.out("Output");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEachMatrix<T>(x(ctx), [&](int64_t which, const Matrix& a) -> absl::Status {
      const absl::optional<Matrix> inverse = Factors(a).Inverse();
      if (!inverse.has_value()) return Singular("Input", which);
      inverse->WriteTo(out.data<T>(ctx), which);
      return absl::OkStatus();
    });
  });
}

// Input@GRAD = -Outputᵀ Output@GRAD Outputᵀ.
absl::StatusOr<Kernel> InverseGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In out = op.in("Output"), dout = op.in("Output@GRAD");
  const Out dx = op.out("Input@GRAD");
  return op.Make(Floats(out), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEachMatrix<T>(out(ctx), [&](int64_t which, const Matrix& inverse) {
      const Matrix y = Transposed(inverse), dy(dout.data<T>(ctx), which, y.rows, y.rows);
      Scaled(Product(Product(y, dy), y), -1).WriteTo(dx.data<T>(ctx), which);
    });
  });
}

// --- Determinant ---------------------------------------------------------------------------------

Dims BatchOf(const Tensor& matrices) {
  return Dims(matrices.dims().begin(), matrices.dims().end() - 2);
}

absl::StatusOr<Kernel> Determinant(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("Input");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    out(ctx).Resize(x(ctx).dtype(), BatchOf(x(ctx)));
    std::fill_n(out.data<T>(ctx), out(ctx).size(), T(1));  // of matrices without elements
    return ForEachMatrix<T>(x(ctx), [&](int64_t which, const Matrix& a) {
      out.data<T>(ctx)[which] = static_cast<T>(Factors(a).Determinant());
    });
  });
}

// The determinants without row i and column j, with the signs of a chess board: what the
// determinant's derivative is. O(n⁵).
Matrix Cofactors(const Matrix& a) {
  const int64_t n = a.rows;
  Matrix result(n, n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      Matrix minor(n - 1, n - 1);
      for (int64_t k = 0; k < n - 1; ++k) {
        for (int64_t l = 0; l < n - 1; ++l) minor(k, l) = a(k + (k >= i), l + (l >= j));
      }
      result(i, j) = Factors(minor).Determinant() * ((i + j) % 2 == 0 ? 1 : -1);
    }
  }
  return result;
}

// Input@GRAD = Out@GRAD Out Input⁻ᵀ, by cofactors where Input is singular. Paddle's CPU kernel
// gives 0 for all matrices if one is singular.
absl::StatusOr<Kernel> DeterminantGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("Input"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("Input@GRAD");
  const bool quirks = spec.paddle_cpu_quirks;
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
      const Factors factors(Transposed(a));
      const absl::optional<Matrix> inverse = factors.Inverse();
      const Matrix derivative =
          inverse.has_value() ? Scaled(*inverse, factors.Determinant()) : Cofactors(a);
      Scaled(derivative, dys[which]).WriteTo(dx.data<T>(ctx), which);
    });
  });
}

// Out = the signs of all determinants, then the logarithms of their sizes.
absl::StatusOr<Kernel> SlogDeterminant(const KernelSpec& spec) {
  OpKernel op(spec);
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
      const auto [sign, log] = Factors(a).SignAndLog();
      signs[which] = static_cast<T>(sign);
      logs[which] = static_cast<T>(log);
    });
  });
}

// Input@GRAD = Out@GRAD Input⁻ᵀ, with the gradient of the logarithm.
absl::StatusOr<Kernel> SlogDeterminantGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"Out"});
  const In x = op.in("Input"), dout = op.in("Out@GRAD");
  const Out dx = op.out("Input@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_RETURN_IF_ERROR(CheckSize("Out@GRAD", dout(ctx), 2 * NumElements(BatchOf(x(ctx)))));
    const T* dlogs = dout.data<T>(ctx) + dout(ctx).size() / 2;
    return ForEachMatrix<T>(x(ctx), [&](int64_t which, const Matrix& a) -> absl::Status {
      const absl::optional<Matrix> inverse = Factors(Transposed(a)).Inverse();
      if (!inverse.has_value()) return Singular("Input", which);
      Scaled(*inverse, dlogs[which]).WriteTo(dx.data<T>(ctx), which);
      return absl::OkStatus();
    });
  });
}

// --- Cholesky ------------------------------------------------------------------------------------

// The L with L Lᵀ = a, of whose lower triangle it is made; none where a is not positive definite.
absl::optional<Matrix> CholeskyFactor(const Matrix& a) {
  const int64_t n = a.rows;
  Matrix l(n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      double rest = a(i, j);
      for (int64_t k = 0; k < j; ++k) rest -= l(i, k) * l(j, k);
      if (i == j && !(rest > 0)) return absl::nullopt;
      l(i, j) = i == j ? std::sqrt(rest) : rest / l(j, j);
    }
  }
  return l;
}

// Out = L with L Lᵀ = X or, where `upper`, Lᵀ.
absl::StatusOr<Kernel> Cholesky(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const bool upper = spec.attrs.Bool("upper");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEachMatrix<T>(x(ctx), [&](int64_t which, const Matrix& a) -> absl::Status {
      const absl::optional<Matrix> l = CholeskyFactor(upper ? Transposed(a) : a);
      if (!l.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("input X: matrix ", which, " is not positive definite"));
      }
      (upper ? Transposed(*l) : *l).WriteTo(out.data<T>(ctx), which);
      return absl::OkStatus();
    });
  });
}

// X@GRAD = (S + Sᵀ) / 2 with S = L⁻ᵀ P L⁻¹, where P is the lower triangle, with half the diagonal,
// of Lᵀ L@GRAD.
absl::StatusOr<Kernel> CholeskyGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const bool upper = spec.attrs.Bool("upper");
  return op.Make(Floats(out), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEachMatrix<T>(out(ctx), [&](int64_t which, const Matrix& y) -> absl::Status {
      const Matrix dy(dout.data<T>(ctx), which, y.rows, y.rows);
      const Matrix lt = upper ? y : Transposed(y);
      const Matrix dl = Triangle(upper ? Transposed(dy) : dy, /*lower=*/true);
      const Matrix p = Triangle(Product(lt, dl), /*lower=*/true, /*diagonal=*/0.5);
      const absl::optional<Matrix> half = SolveTriangular(lt, /*lower=*/false, /*unit=*/false, p);
      if (!half.has_value()) return Singular("Out", which);
      const Matrix s = *SolveTriangular(lt, /*lower=*/false, /*unit=*/false, Transposed(*half));
      Scaled(Sum(s, Transposed(s)), 0.5).WriteTo(dx.data<T>(ctx), which);
      return absl::OkStatus();
    });
  });
}

// --- Products ------------------------------------------------------------------------------------

// A vector is a row where it is the first factor, a column where it is the last one.
template <typename T>
std::vector<Matrix> ReadFactors(const In& x, const KernelContext& ctx) {
  std::vector<Matrix> factors;
  for (int i = 0; i < x.count(); ++i) {
    const Dims& dims = x(ctx, i).dims();
    const bool is_row = dims.size() == 1 && i == 0;
    const int64_t columns = dims.size() == 2 ? dims[1] : is_row ? dims[0] : 1;
    factors.emplace_back(x.data<T>(ctx, i), 0, is_row ? 1 : dims[0], columns);
  }
  return factors;
}

// Out = X[0] X[1] ..., from the left.
absl::StatusOr<Kernel> MultiDot(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const std::vector<Matrix> factors = ReadFactors<T>(x, ctx);
    Matrix product = factors[0];
    for (size_t i = 1; i < factors.size(); ++i) product = Product(product, factors[i]);
    product.WriteTo(out.data<T>(ctx), 0);
  });
}

// X@GRAD[i] = (the product of those before)ᵀ Out@GRAD (the product of those behind)ᵀ.
absl::StatusOr<Kernel> MultiDotGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const std::vector<Matrix> factors = ReadFactors<T>(x, ctx);
    std::vector<Matrix> before = {Identity(factors[0].rows)};
    for (const Matrix& factor : factors) before.push_back(Product(before.back(), factor));
    Matrix grad(dout.data<T>(ctx), 0, factors.front().rows, factors.back().columns);
    for (int i = x.count() - 1; i >= 0; --i) {
      if (Tensor* to = dx.get(ctx, i)) {
        Product(Transposed(before[i]), grad).WriteTo(to->data<T>(), 0);
      }
      grad = Product(grad, Transposed(factors[i]));
    }
  });
}

// --- Systems of equations ------------------------------------------------------------------------

// How a system, of matrix `a` and right sides b, is solved, and the system of the transposed
// matrix. MatrixGrad makes the gradient of `a` of that of the matrix of the system.

struct GeneralSystem {
  static constexpr const char *kMatrix = "X", *kRight = "Y";
  static constexpr bool kMayBeVectors = true;  // right sides
  explicit GeneralSystem(const KernelSpec&) {}

  absl::optional<Matrix> Solve(const Matrix& a, const Matrix& b) const {
    return Factors(a).Solve(b);
  }
  absl::optional<Matrix> SolveTransposed(const Matrix& a, const Matrix& b) const {
    return Factors(Transposed(a)).Solve(b);
  }
  Matrix MatrixGrad(const Matrix&, Matrix grad) const { return grad; }
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

  absl::optional<Matrix> Solve(const Matrix& a, const Matrix& b) const {
    if (transpose) return SolveTriangular(Transposed(a), upper, unit, b);
    return SolveTriangular(a, !upper, unit, b);
  }
  absl::optional<Matrix> SolveTransposed(const Matrix& a, const Matrix& b) const {
    if (transpose) return SolveTriangular(a, !upper, unit, b);
    return SolveTriangular(Transposed(a), upper, unit, b);
  }
  // Paddle's CPU kernel has those of the diagonal of 1 and of the one above, too, for lower ones.
  Matrix MatrixGrad(const Matrix&, const Matrix& grad) const {
    const Matrix full = transpose ? Transposed(grad) : grad;
    Matrix result = Triangle(full, !upper, unit ? 0 : 1);
    for (int64_t i = 0; quirks && unit && !upper && i < full.rows; ++i) {
      for (int64_t j = i; j < std::min(i + 2, full.rows); ++j) result(i, j) = full(i, j);
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
    const Matrix l = upper ? Transposed(a) : a, lt = upper ? a : Transposed(a);
    const absl::optional<Matrix> half = SolveTriangular(l, /*lower=*/true, /*unit=*/false, b);
    if (!half.has_value()) return half;
    return SolveTriangular(lt, /*lower=*/false, /*unit=*/false, *half);
  }
  absl::optional<Matrix> SolveTransposed(const Matrix& a, const Matrix& b) const {
    return Solve(a, b);
  }
  // Paddle's CPU kernel takes the other triangle of the factor here, too.
  Matrix MatrixGrad(const Matrix& a, const Matrix& grad) const {
    const Matrix both = Sum(grad, Transposed(grad)), triangle = quirks ? a : Triangle(a, !upper);
    return Triangle(upper ? Product(triangle, both) : Product(both, triangle), !upper);
  }
};

// Matrices [..., n, n] and right sides [..., n, columns], with dimensions before that broadcast; or
// right sides [n], or [..., n] with all dimensions but the last one of the matrices.
struct Systems {
  int64_t n, columns;
  Dims matrices, rights;

  Systems(const Dims& a, const Dims& b, bool may_be_vectors)
      : n(a.back()), matrices(a.begin(), a.end() - 2) {
    const bool vectors = may_be_vectors && (b.size() == 1 || b == Dims(a.begin(), a.end() - 1));
    columns = vectors ? 1 : b.back();
    rights.assign(b.begin(), b.end() - (vectors ? 1 : 2));
  }

  // Calls visit(place in the result, of the matrix, of the right sides) up to the first error.
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
absl::StatusOr<Kernel> Solve(const KernelSpec& spec) {
  OpKernel op(spec);
  const In matrix = op.in(System::kMatrix), right = op.in(System::kRight);
  const Out out = op.out("Out");
  const System system(spec);
  return op.Make(Floats(matrix), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Systems all(matrix(ctx).dims(), right(ctx).dims(), System::kMayBeVectors);
    return all.ForEach([&](int64_t place, int64_t a, int64_t b) -> absl::Status {
      const absl::optional<Matrix> x =
          system.Solve(Matrix(matrix.data<T>(ctx), a, all.n, all.n),
                       Matrix(right.data<T>(ctx), b, all.n, all.columns));
      if (!x.has_value()) return Singular(System::kMatrix, a);
      x->WriteTo(out.data<T>(ctx), place);
      return absl::OkStatus();
    });
  });
}

// The gradient of the right sides is the solution D of the transposed system for Out@GRAD, that of
// the matrix -D Outᵀ; each summed over what the operand was repeated for.
template <typename System>
absl::StatusOr<Kernel> SolveGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In matrix = op.in(System::kMatrix), right = op.in(System::kRight);
  const In out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dmatrix = op.out(absl::StrCat(System::kMatrix, "@GRAD"));
  const Out dright = op.out(absl::StrCat(System::kRight, "@GRAD"));
  const System system(spec);
  return op.Make(Floats(matrix), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Systems all(matrix(ctx).dims(), right(ctx).dims(), System::kMayBeVectors);
    const int64_t n = all.n, columns = all.columns;
    std::vector<double> matrix_sums(matrix(ctx).size(), 0.0), right_sums(right(ctx).size(), 0.0);
    const auto add = [](const Matrix& grad, int64_t which, std::vector<double>* sums) {
      double* to = sums->data() + which * grad.rows * grad.columns;
      for (size_t i = 0; i < grad.values.size(); ++i) to[i] += grad.values[i];
    };
    WEFT_RETURN_IF_ERROR(all.ForEach([&](int64_t place, int64_t a, int64_t b) -> absl::Status {
      const Matrix coefficients(matrix.data<T>(ctx), a, n, n);
      const Matrix x(out.data<T>(ctx), place, n, columns);
      const absl::optional<Matrix> d =
          system.SolveTransposed(coefficients, Matrix(dout.data<T>(ctx), place, n, columns));
      if (!d.has_value()) return Singular(System::kMatrix, a);
      add(*d, b, &right_sums);
      add(system.MatrixGrad(coefficients, Scaled(Product(*d, Transposed(x)), -1)), a, &matrix_sums);
      return absl::OkStatus();
    }));
    if (T* to = dmatrix.data_or_null<T>(ctx)) std::copy(matrix_sums.begin(), matrix_sums.end(), to);
    if (T* to = dright.data_or_null<T>(ctx)) std::copy(right_sums.begin(), right_sums.end(), to);
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
  table->Add("multi_dot", MultiDot);
  table->Add("multi_dot_grad", MultiDotGrad);
  table->Add("solve", Solve<GeneralSystem>);
  table->Add("solve_grad", SolveGrad<GeneralSystem>);
  table->Add("triangular_solve", Solve<TriangularSystem>);
  table->Add("triangular_solve_grad", SolveGrad<TriangularSystem>);
  table->Add("cholesky_solve", Solve<CholeskySystem>);
  table->Add("cholesky_solve_grad", SolveGrad<CholeskySystem>);
}

}  // namespace weft
