#include "executor/finite.h"

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace weft {
namespace {

template <typename T>
absl::string_view FirstNonFiniteOf(const T* data, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const auto value = static_cast<Wide>(data[i]);
    if (std::isfinite(value)) continue;
    if (std::isnan(value)) return "nan";
    return value > 0 ? "inf" : "-inf";
  }
  return "";
}

}  // namespace

absl::string_view FirstNonFinite(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat32:
      return FirstNonFiniteOf(tensor.data<float>(), tensor.size());
    case DType::kFloat64:
      return FirstNonFiniteOf(tensor.data<double>(), tensor.size());
    case DType::kFloat16:
      return FirstNonFiniteOf(tensor.data<Float16>(), tensor.size());
    case DType::kBFloat16:
      return FirstNonFiniteOf(tensor.data<BFloat16>(), tensor.size());
    default:
      return "";
  }
}

}  // namespace weft
