// Products of matrices on a CUDA device, by cuBLASLt.
#ifndef WEFT_OPS_GPU_GEMM_H_
#define WEFT_OPS_GPU_GEMM_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "ops/kernel.h"

namespace weft {

// C = op(A) op(B), row-major: op(A) is m x k, op(B) is k x n; a transposed operand is stored as its
// transpose. fp32 with fp32 arithmetic (no TF32), or fp64. Keeps the plan for the last sizes and
// alignments; all products on a stream share a workspace of 32 MiB.
class GpuGemm {
 public:
  GpuGemm(bool transpose_a, bool transpose_b);
  ~GpuGemm();

  absl::Status Run(const KernelContext& ctx, int64_t m, int64_t n, int64_t k, const float* a,
                   const float* b, float* c);
  absl::Status Run(const KernelContext& ctx, int64_t m, int64_t n, int64_t k, const double* a,
                   const double* b, double* c);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft

#endif  // WEFT_OPS_GPU_GEMM_H_
