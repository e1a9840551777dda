// Matrix products.
#ifndef WEFT_OPS_CPU_GEMM_H_
#define WEFT_OPS_CPU_GEMM_H_

#include <cstdint>
#include <memory>

namespace weft {

enum class Transpose { kNo, kYes };

// C = op(A) op(B) for row-major matrices: op(A) is m × k, op(B) k × n, C m × n; a transposed
// operand is stored the other way round. C overlaps neither operand.
//
// Single precision runs in oneDNN, on the calling thread alone (whose OpenMP thread count becomes
// 1), with the primitive that fits the shape; it is made at the first call and kept while the shape
// stays. Double precision, which oneDNN does not have, runs in Eigen. A Gemm and its copies run
// once at a time.
class Gemm {
 public:
  Gemm(Transpose a, Transpose b);

  void Run(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c);
  void Run(int64_t m, int64_t n, int64_t k, const double* a, const double* b, double* c) const;

 private:
  struct Primitive;

  Transpose transpose_a_, transpose_b_;
  std::shared_ptr<Primitive> primitive_;
};

}  // namespace weft

#endif  // WEFT_OPS_CPU_GEMM_H_
