#include "ops/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <unordered_map>

#include "oneapi/dnnl/dnnl.hpp"

namespace weft {
namespace {

using dnnl::memory;

const dnnl::engine& CpuEngine() {
  static const dnnl::engine* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

memory::desc Matrix(int64_t rows, int64_t columns, Transpose transpose) {
  return memory::desc(
      {rows, columns}, memory::data_type::f32,
      transpose == Transpose::kYes ? memory::format_tag::ba : memory::format_tag::ab);
}

dnnl::matmul::primitive_desc Describe(const memory::desc& a, const memory::desc& b,
                                      const memory::desc& c) {
  // The library's own scratchpad belongs to the thread that made the primitive.
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, CpuEngine());
}

}  // namespace

struct Gemm::Primitive {
  Primitive(int64_t m, int64_t n, int64_t k, Transpose transpose_a, Transpose transpose_b)
      : m(m),
        n(n),
        k(k),
        a(Matrix(m, k, transpose_a), CpuEngine(), nullptr),
        b(Matrix(k, n, transpose_b), CpuEngine(), nullptr),
        c(Matrix(m, n, Transpose::kNo), CpuEngine(), nullptr),
        description(Describe(a.get_desc(), b.get_desc(), c.get_desc())),
        matmul(description),
        scratchpad(description.scratchpad_desc(), CpuEngine()),
        stream(CpuEngine()),
        arguments{{DNNL_ARG_SRC, a},
                  {DNNL_ARG_WEIGHTS, b},
                  {DNNL_ARG_DST, c},
                  {DNNL_ARG_SCRATCHPAD, scratchpad}} {}

  bool Fits(int64_t m2, int64_t n2, int64_t k2) const { return m == m2 && n == n2 && k == k2; }

  int64_t m, n, k;
  memory a, b, c;
  dnnl::matmul::primitive_desc description;
  dnnl::matmul matmul;
  memory scratchpad;
  dnnl::stream stream;
  std::unordered_map<int, memory> arguments;
};

Gemm::Gemm(Transpose a, Transpose b) : transpose_a_(a), transpose_b_(b) {}

void Gemm::Run(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
  if (k == 0) std::fill_n(c, m * n, 0.0f);
  if (m == 0 || n == 0 || k == 0) return;
  omp_set_num_threads(1);  // of this thread
  if (primitive_ == nullptr || !primitive_->Fits(m, n, k)) {
    primitive_ = std::make_shared<Primitive>(m, n, k, transpose_a_, transpose_b_);
  }
  // oneDNN takes inputs by pointers to mutable memory and does not write them.
  primitive_->a.set_data_handle(const_cast<float*>(a));
  primitive_->b.set_data_handle(const_cast<float*>(b));
  primitive_->c.set_data_handle(c);
  primitive_->matmul.execute(primitive_->stream, primitive_->arguments);
  primitive_->stream.wait();
}

void Gemm::Run(int64_t m, int64_t n, int64_t k, const double* a, const double* b, double* c) const {
  const int64_t a_row = transpose_a_ == Transpose::kYes ? 1 : k;
  const int64_t a_column = transpose_a_ == Transpose::kYes ? m : 1;
  const int64_t b_row = transpose_b_ == Transpose::kYes ? 1 : n;
  const int64_t b_column = transpose_b_ == Transpose::kYes ? k : 1;
  std::fill_n(c, m * n, 0.0);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; p < k; ++p) {
      const double factor = a[i * a_row + p * a_column];
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += factor * b[p * b_row + j * b_column];
    }
  }
}

}  // namespace weft
