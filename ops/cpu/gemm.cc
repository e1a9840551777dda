#include "ops/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <eigen3/Eigen/Core>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/cpu/dnnl_primitive.h"

namespace weft {
namespace {

using dnnl::memory;

// The matrices of one operand, or of the result.
memory::desc Matrices(int64_t count, int64_t rows, int64_t columns, Transpose transpose,
                      memory::data_type type) {
  const bool flips = transpose == Transpose::kYes;
  return memory::desc({count, rows, columns}, type,
                      memory::dims{rows * columns, flips ? 1 : columns, flips ? rows : 1});
}

template <typename T>
constexpr memory::data_type kDnnlType =
    std::is_same_v<T, BFloat16> ? memory::data_type::bf16 : memory::data_type::f32;

// Of operands of type T and results of type Result.
template <typename T, typename Result>
DnnlPrimitive MatMul(const GemmShape& s, const PostOps& post_ops = {}) {
  const memory::desc a = Matrices(s.repeats_a ? 1 : s.batch, s.m, s.k, s.a, kDnnlType<T>);
  const memory::desc b = Matrices(s.repeats_b ? 1 : s.batch, s.k, s.n, s.b, kDnnlType<T>);
  const memory::desc c = Matrices(s.batch, s.m, s.n, Transpose::kNo, kDnnlType<Result>);
  dnnl::primitive_attr attributes = DnnlAttributes();
  if (s.alpha != 1) attributes.set_output_scales(0, {static_cast<float>(s.alpha)});
  // oneDNN adds a bias before it multiplies by alpha.
  const bool has_bias = post_ops.begins_with_bias() && s.alpha == 1;
  const memory::desc bias = Matrices(1, 1, s.n, Transpose::kNo, kDnnlType<Result>);
  std::vector<DnnlPrimitive::Argument> inputs = {{DNNL_ARG_SRC, a, a}, {DNNL_ARG_WEIGHTS, b, b}};
  post_ops.AddTo(c, bias, has_bias, &attributes, &inputs);
  const dnnl::matmul::primitive_desc description(
      has_bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c), attributes,
      DnnlCpuEngine());
  return DnnlPrimitive(dnnl::matmul(description), description.scratchpad_desc(), inputs,
                       {{DNNL_ARG_DST, c, c}});
}

absl::Status Failure(const dnnl::error& error) {
  return absl::UnimplementedError(absl::StrCat("no kernel in oneDNN: ", error.what()));
}

// One product in double precision.
void Multiply(const GemmShape& s, const double* a, const double* b, double* c) {
  // Eigen's order is by columns: the same memory is the transposed matrix.
  using Eigen::Map, Eigen::MatrixXd;
  Map<MatrixXd> to(c, s.n, s.m);
  const bool flips_a = s.a == Transpose::kYes, flips_b = s.b == Transpose::kYes;
  const Map<const MatrixXd> as(a, flips_a ? s.m : s.k, flips_a ? s.k : s.m);
  const Map<const MatrixXd> bs(b, flips_b ? s.k : s.n, flips_b ? s.n : s.k);
  if (flips_a && flips_b) {
    to.noalias() = bs.transpose() * as.transpose();
  } else if (flips_a) {
    to.noalias() = bs * as.transpose();
  } else if (flips_b) {
    to.noalias() = bs.transpose() * as;
  } else {
    to.noalias() = bs * as;
  }
  if (s.alpha != 1) to *= s.alpha;
}

}  // namespace

struct Gemm::Primitive {
  DnnlOfShape<std::array<int64_t, 3>> of_shape;
};

Gemm::Gemm(Transpose a, Transpose b)
    : transpose_a_(a), transpose_b_(b), primitive_(std::make_shared<Primitive>()) {}

void Gemm::Run(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
  if (k == 0) std::fill_n(c, m * n, 0.0f);
  if (m == 0 || n == 0 || k == 0) return;
  const auto make = [&](const auto&) {
    return MatMul<float, float>({transpose_a_, transpose_b_, m, n, k});
  };
  primitive_->of_shape({m, n, k}, make).Run({a, b}, {c});
}

void Gemm::Run(int64_t m, int64_t n, int64_t k, const double* a, const double* b, double* c) const {
  Multiply({transpose_a_, transpose_b_, m, n, k}, a, b, c);
}

template <typename T, typename Result>
BatchedGemm<T, Result>::BatchedGemm(const GemmShape& s, const PostOps& post_ops) : shape_(s) {
  if (std::is_same_v<T, double> || s.batch == 0 || s.m == 0 || s.n == 0 || s.k == 0) return;
  try {
    primitive_ = std::make_shared<DnnlPrimitive>(MatMul<T, Result>(s, post_ops));
  } catch (const dnnl::error& error) {
    status_ = Failure(error);
  }
}

template <typename T, typename Result>
absl::Status BatchedGemm<T, Result>::Run(const T* a, const T* b, Result* c,
                                         const PostOps::Operands& operands) const {
  const GemmShape& s = shape_;
  if (primitive_ != nullptr) {
    try {
      PostOps::Operands inputs = {a, b};
      inputs.insert(inputs.end(), operands.begin(), operands.end());
      primitive_->Run(inputs, {c});
    } catch (const dnnl::error& error) {
      return Failure(error);
    }
  } else if (s.k == 0) {
    std::fill_n(c, s.batch * s.m * s.n, Result(0));
  } else if constexpr (std::is_same_v<T, double>) {
    for (int64_t i = 0; i < s.batch; ++i, c += s.m * s.n) {
      Multiply(s, a + (s.repeats_a ? 0 : i * s.m * s.k), b + (s.repeats_b ? 0 : i * s.k * s.n), c);
    }
  }
  return status_;
}

template class BatchedGemm<float>;
template class BatchedGemm<double>;
template class BatchedGemm<BFloat16>;
template class BatchedGemm<BFloat16, float>;

}  // namespace weft
