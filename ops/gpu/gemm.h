// Products of matrices on a CUDA device, by cuBLASLt.
#ifndef WEFT_OPS_GPU_GEMM_H_
#define WEFT_OPS_GPU_GEMM_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "ops/float16.h"
#include "ops/kernel.h"

namespace weft {

// C = alpha op(A) op(B), row-major: op(A) is m x k, op(B) is k x n; a transposed operand is stored
// as its transpose. For `batch` matrices, which lie one after the other.
struct GpuGemmShape {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  double alpha = 1;
  int64_t batch = 1;
  bool repeats_a = false, repeats_b = false;  // a single matrix for the whole batch

  bool operator==(const GpuGemmShape& other) const {
    return transpose_a == other.transpose_a && transpose_b == other.transpose_b && m == other.m &&
           n == other.n && k == other.k && alpha == other.alpha && batch == other.batch &&
           repeats_a == other.repeats_a && repeats_b == other.repeats_b;
  }
};

// fp32 and halves with sums in fp32, or fp64. Keeps the plan for the last shape and
// alignments; all products on a stream share a workspace of 32 MiB.
class GpuGemm {
 public:
  // `tf32`: as in KernelSpec.
  explicit GpuGemm(bool tf32);
  ~GpuGemm();

  // Unavailable, with what is missing and where it was sought, without cuBLASLt: factories of
  // kernels that compute products return that. `file` takes the place of the toolkit's library.
  static absl::Status Load(const std::string& file = "");

  // T: float, double, Float16 or BFloat16. To: T, or float where that is a half.
  template <typename T, typename To>
  absl::Status Run(const KernelContext& ctx, const GpuGemmShape& shape, const T* a, const T* b,
                   To* c);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

#define WEFT_INSTANTIATE_GPU_GEMM_OF(T, To)                                               \
  template absl::Status GpuGemm::Run(const KernelContext&, const GpuGemmShape&, const T*, \
                                     const T*, To*);
// For the files that implement it.
#define WEFT_INSTANTIATE_GPU_GEMM                  \
  WEFT_INSTANTIATE_GPU_GEMM_OF(float, float)       \
  WEFT_INSTANTIATE_GPU_GEMM_OF(double, double)     \
  WEFT_INSTANTIATE_GPU_GEMM_OF(Float16, Float16)   \
  WEFT_INSTANTIATE_GPU_GEMM_OF(Float16, float)     \
  WEFT_INSTANTIATE_GPU_GEMM_OF(BFloat16, BFloat16) \
  WEFT_INSTANTIATE_GPU_GEMM_OF(BFloat16, float)

}  // namespace weft

#endif  // WEFT_OPS_GPU_GEMM_H_
