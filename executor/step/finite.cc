#include "executor/step/finite.h"

#include <algorithm>
#include <cmath>

#include "ops/kernel_util.h"

namespace weft {

absl::string_view FirstNonFinite(const Tensor& tensor) {
  absl::string_view found;
  const auto search = [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* end = tensor.data<T>() + tensor.size();
    const T* first = std::find_if_not(tensor.data<T>(), end, [](T x) { return std::isfinite(x); });
    if (first != end) found = std::isnan(*first) ? "nan" : *first > 0 ? "inf" : "-inf";
    return absl::OkStatus();
  };
  ForElementType<float, double, Float16, BFloat16>("", tensor, search).IgnoreError();
  return found;
}

}  // namespace weft
