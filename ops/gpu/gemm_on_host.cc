// GpuGemm without a GPU, for tests.
#include <cstring>
#include <type_traits>

#include "ops/gpu/gemm.h"

namespace weft {

class GpuGemm::Impl {
 public:
  explicit Impl(bool tf32) : tf32_(tf32) {}

  template <typename T, typename To>
  absl::Status Run(const GpuGemmShape& s, const T* a, const T* b, To* c) const {
    for (int64_t batch = 0; batch < s.batch; ++batch) {
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < s.k; ++l) {
            const T x = s.transpose_a ? a[l * s.m + i] : a[i * s.k + l];
            const T y = s.transpose_b ? b[j * s.k + l] : b[l * s.n + j];
            sum += Operand(x) * Operand(y);
          }
          using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
          c[i * s.n + j] = static_cast<To>(static_cast<Sum>(s.alpha * sum));
        }
      }
      if (!s.repeats_a) a += s.m * s.k;
      if (!s.repeats_b) b += s.k * s.n;
      c += s.m * s.n;
    }
    return absl::OkStatus();
  }

 private:
  template <typename T>
  double Operand(T value) const {
    if constexpr (std::is_same_v<T, float>) {
      if (tf32_) {  // to nearest
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof(bits));
        bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffU;
        std::memcpy(&value, &bits, sizeof(bits));
      }
    }
    return static_cast<double>(value);
  }

  const bool tf32_;
};

GpuGemm::GpuGemm(bool tf32) : impl_(std::make_unique<Impl>(tf32)) {}
GpuGemm::~GpuGemm() = default;

absl::Status GpuGemm::Load(const std::string&) { return absl::OkStatus(); }

template <typename T, typename To>
absl::Status GpuGemm::Run(const KernelContext&, const GpuGemmShape& shape, const T* a, const T* b,
                          To* c) {
  return impl_->Run(shape, a, b, c);
}

WEFT_INSTANTIATE_GPU_GEMM

}  // namespace weft
