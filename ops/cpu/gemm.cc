#include "ops/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <eigen3/Eigen/Core>

#include "ops/cpu/dnnl_primitive.h"

namespace weft {
namespace {

using dnnl::memory;

memory::desc Matrix(int64_t rows, int64_t columns, Transpose transpose) {
  return memory::desc(
      {rows, columns}, memory::data_type::f32,
      transpose == Transpose::kYes ? memory::format_tag::ba : memory::format_tag::ab);
}

DnnlPrimitive MatMul(const memory::desc& a, const memory::desc& b, const memory::desc& c) {
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), DnnlAttributes(),
                                                 DnnlCpuEngine());
  return DnnlPrimitive(dnnl::matmul(description), description.scratchpad_desc(),
                       {{DNNL_ARG_SRC, a, a}, {DNNL_ARG_WEIGHTS, b, b}}, {{DNNL_ARG_DST, c, c}});
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
  DnnlPrimitive& matmul = primitive_->of_shape({m, n, k}, [&](const auto&) {
    return MatMul(Matrix(m, k, transpose_a_), Matrix(k, n, transpose_b_),
                  Matrix(m, n, Transpose::kNo));
  });
  matmul.Run({a, b}, {c});
}

void Gemm::Run(int64_t m, int64_t n, int64_t k, const double* a, const double* b, double* c) const {
  // Eigen's order is by columns: the same memory is the transposed matrix.
  using Eigen::Map, Eigen::MatrixXd;
  Map<MatrixXd> to(c, n, m);
  const bool flips_a = transpose_a_ == Transpose::kYes, flips_b = transpose_b_ == Transpose::kYes;
  const Map<const MatrixXd> as(a, flips_a ? m : k, flips_a ? k : m);
  const Map<const MatrixXd> bs(b, flips_b ? k : n, flips_b ? n : k);
  if (flips_a && flips_b) {
    to.noalias() = bs.transpose() * as.transpose();
  } else if (flips_a) {
    to.noalias() = bs * as.transpose();
  } else if (flips_b) {
    to.noalias() = bs.transpose() * as;
  } else {
    to.noalias() = bs * as;
  }
}

}  // namespace weft
