#include "tools/numeric/tensor_difference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace weft {

double ElementAt(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case DType::kFloat32:
      return tensor.data<float>()[i];
    case DType::kFloat64:
      return tensor.data<double>()[i];
    case DType::kInt32:
      return tensor.data<int32_t>()[i];
    case DType::kInt64:
      return static_cast<double>(tensor.data<int64_t>()[i]);
    default:
      return static_cast<const uint8_t*>(tensor.raw())[i];
  }
}

absl::optional<TensorDifference> CompareTensors(const Tensor& expected, const Tensor& found) {
  double largest = 0;
  absl::optional<TensorDifference> most;
  double size_of_most = 0;
  for (int64_t i = 0; i < expected.size(); ++i) {
    const double a = ElementAt(expected, i), b = ElementAt(found, i);
    largest = std::max({largest, std::abs(a), std::abs(b)});
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double size = std::abs(a - b);
    if (most.has_value() && !(size > size_of_most) && !std::isnan(size)) continue;
    most = TensorDifference{i, a, b, 0};
    size_of_most = size;
    if (!std::isfinite(size)) break;
  }
  if (most.has_value()) most->relative = size_of_most / largest;
  if (most.has_value() && !std::isfinite(size_of_most)) most->relative = HUGE_VAL;
  return most;
}

Dims IndexOfElement(int64_t place, const Dims& dims) {
  Dims index(dims.size());
  for (size_t d = dims.size(); d-- > 0;) {
    index[d] = place % dims[d];
    place /= dims[d];
  }
  return index;
}

}  // namespace weft
