// Matrix products.
#ifndef WEFT_OPS_CPU_GEMM_H_
#define WEFT_OPS_CPU_GEMM_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "ops/cpu/post_ops.h"
#include "ops/float16.h"

namespace weft {

class DnnlPrimitive;

enum class Transpose { kNo, kYes };

// C = op(A) op(B) for row-major matrices: op(A) is m × k, op(B) k × n, C m × n; a transposed
// operand is stored the other way round. C overlaps neither operand.
//
// Single precision runs in oneDNN, with the primitive that fits the shape; it is made at the first
// call and kept while the shape stays. Double precision, which oneDNN does not have, runs in Eigen.
// A Gemm and its copies run once at a time.
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

// Equal products of a batch: C[i] = alpha op(A[i]) op(B[i]). Matrices are as for Gemm, and those of
// a batch follow one another in memory.
struct GemmShape {
  Transpose a = Transpose::kNo, b = Transpose::kNo;
  int64_t m = 0, n = 0, k = 0;
  double alpha = 1;
  int64_t batch = 1;
  bool repeats_a = false, repeats_b = false;  // a single matrix for the whole batch
};

// The products of one shape, for float and double, computed as in Gemm, and for BFloat16 where
// HasBFloat16Products (ops/cpu/dnnl_primitive.h); a batch in oneDNN is one primitive. Copies share
// it, and run once at a time.
//
// Sums of products of BFloat16 are in fp32. Where equal shapes run on different numbers of threads,
// oneDNN may add up in another order.
template <typename T, typename Result = T>
class BatchedGemm {
 public:
  // With post-ops, the columns of the products are channels.
  explicit BatchedGemm(const GemmShape& shape, const PostOps& post_ops = {});

  // Whether Run carries out the post-ops: if not, they are left to the caller.
  bool takes_post_ops() const { return primitive_ != nullptr; }

  // `operands`: of the post-ops. Unimplemented if oneDNN fails.
  absl::Status Run(const T* a, const T* b, Result* c, const PostOps::Operands& operands = {}) const;

 private:
  GemmShape shape_;
  absl::Status status_;
  std::shared_ptr<DnnlPrimitive> primitive_;  // null for double precision and empty shapes
};

}  // namespace weft

#endif  // WEFT_OPS_CPU_GEMM_H_
