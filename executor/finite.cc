#include "executor/finite.h"

#include <cmath>
#include <cstdint>

namespace weft {
namespace {

template <typename T>
absl::string_view FirstNonFiniteOf(const T* data, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    if (std::isfinite(data[i])) continue;
    if (std::isnan(data[i])) return "nan";
    return data[i] > 0 ? "inf" : "-inf";
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
    default:
      return "";
  }
}

}  // namespace weft
