#include "tools/numeric/values.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "ops/kernel_util.h"

namespace weft {

uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t HashOfName(absl::string_view name) {
  uint64_t hash = name.size();
  for (char c : name) hash = MixBits(hash ^ static_cast<unsigned char>(c));
  return hash;
}

double SmallNumber(uint64_t random) {
  constexpr double kNumbers[] = {-2, -1, 1, 2};
  return kNumbers[random % 4];
}

double RoundedRate(double rate) {
  if (!(rate > 0) || !std::isfinite(rate)) return kDefaultLearningRate;
  return std::exp2(std::round(std::log2(rate)));
}

absl::StatusOr<Tensor> MakeTensor(absl::string_view name, const TensorType& type,
                                  const std::function<double(int64_t)>& value) {
  Tensor tensor;
  tensor.Resize(type.dtype, type.dims);
  const auto fill = [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < tensor.size(); ++i) tensor.data<T>()[i] = static_cast<T>(value(i));
    return absl::OkStatus();
  };
  if (ForElementType<float, double, int32_t, int64_t, bool>(name, tensor, fill).ok()) return tensor;
  return absl::UnimplementedError(absl::StrCat(
      "variable ", name, ": no values are generated for element type ", DTypeName(type.dtype)));
}

absl::StatusOr<Tensor> MakeParameter(absl::string_view name, const TensorType& type) {
  const double inputs = type.dims.size() < 2 ? 1 : static_cast<double>(type.dims[0]);
  const double scale = std::exp2(-std::ceil(std::log2(std::max(1.0, inputs)) / 2));
  const uint64_t hash = HashOfName(name);
  return MakeTensor(name, type, [=](int64_t i) { return scale * SmallNumber(MixBits(hash + i)); });
}

absl::Status ElementBudget::Take(absl::string_view variable, const Dims& dims) {
  const int64_t elements = NumElements(dims);
  if (elements >= 0 && elements <= kMaxNumericElements - taken_) {
    taken_ += elements;
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("variable ", variable, ": with ",
                                                   DimsToString(dims), ", more than ",
                                                   kMaxNumericElements, " elements to generate"));
}

}  // namespace weft
