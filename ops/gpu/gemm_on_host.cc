// GpuGemm without a GPU, for tests.
#include "ops/gpu/gemm.h"

namespace weft {

class GpuGemm::Impl {
 public:
  template <typename T>
  absl::Status Run(const GpuGemmShape& s, const T* a, const T* b, T* c) const {
    for (int64_t batch = 0; batch < s.batch; ++batch) {
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < s.k; ++l) {
            const T x = s.transpose_a ? a[l * s.m + i] : a[i * s.k + l];
            const T y = s.transpose_b ? b[j * s.k + l] : b[l * s.n + j];
            sum += static_cast<double>(x) * y;
          }
          c[i * s.n + j] = static_cast<T>(s.alpha * sum);
        }
      }
      if (!s.repeats_a) a += s.m * s.k;
      if (!s.repeats_b) b += s.k * s.n;
      c += s.m * s.n;
    }
    return absl::OkStatus();
  }
};

GpuGemm::GpuGemm() : impl_(std::make_unique<Impl>()) {}
GpuGemm::~GpuGemm() = default;

absl::Status GpuGemm::Run(const KernelContext&, const GpuGemmShape& shape, const float* a,
                          const float* b, float* c) {
  return impl_->Run(shape, a, b, c);
}
absl::Status GpuGemm::Run(const KernelContext&, const GpuGemmShape& shape, const double* a,
                          const double* b, double* c) {
  return impl_->Run(shape, a, b, c);
}

}  // namespace weft
