#include "ops/cpu/extra/class_weights.h"

#include "ops/kernel_util.h"

namespace weft {

absl::Status CopyNumbers(absl::string_view slot, const Tensor& from, int64_t first, int64_t count,
                         int64_t* to) {
  return ForElementType<int64_t, int32_t>(absl::StrCat("input ", slot), from, [&](auto tag) {
    const auto* numbers = from.data<typename decltype(tag)::type>();
    std::copy_n(numbers + first, count, to);
    return absl::OkStatus();
  });
}

absl::Status CheckOperands(const Tensor& features, const Tensor& weights) {
  if (features.rank() == 2 && weights.rank() == 2 && features.dim(1) == weights.dim(1) &&
      features.dtype() == weights.dtype()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("features and weights: expected rows of one width and type, found ",
                   DTypeName(features.dtype()), DimsToString(features.dims()), " and ",
                   DTypeName(weights.dtype()), DimsToString(weights.dims())));
}

absl::Status CheckNumbers(absl::string_view slot, const Tensor& numbers, int64_t rows) {
  const auto* values = numbers.data<int64_t>();
  for (int64_t i = 0; i < numbers.size(); ++i) {
    if (values[i] >= 0 && values[i] < rows) continue;
    return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": ", values[i], " at position ",
                                                   i, " is not in [0, ", rows, ")"));
  }
  return absl::OkStatus();
}

}  // namespace weft
