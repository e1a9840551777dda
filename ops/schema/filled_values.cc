#include "ops/schema/filled_values.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

template <typename T>
bool Fits(const FilledValue& value) {
  constexpr T kLowest = std::numeric_limits<T>::min(), kLargest = std::numeric_limits<T>::max();
  if (value.integer) return *value.integer >= kLowest && *value.integer <= kLargest;
  // The upper limit of int64 is not exact as double: ldexp is the first number beyond it.
  return std::trunc(value.number) >= static_cast<double>(kLowest) &&
         value.number < std::ldexp(1.0, std::numeric_limits<T>::digits);
}

bool Fits(const FilledValue& value, DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return Fits<int8_t>(value);
    case DType::kUint8:
      return Fits<uint8_t>(value);
    case DType::kInt16:
      return Fits<int16_t>(value);
    case DType::kInt32:
      return Fits<int32_t>(value);
    case DType::kUint16:
      return Fits<uint16_t>(value);
    case DType::kUint32:
      return Fits<uint32_t>(value);
    case DType::kInt64:
      return Fits<int64_t>(value);
    default:
      return true;
  }
}

}  // namespace

absl::StatusOr<FilledValue> ReadFilledValue(const OpAttrs& attrs, DType dtype) {
  const std::string& text = attrs.String("str_value");
  FilledValue value;
  int64_t integer;
  if (text.empty()) {
    value.number = attrs.Float("value");
  } else if (!absl::SimpleAtod(text, &value.number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute str_value: '", text, "' is no number"));
  } else if (absl::SimpleAtoi(text, &integer)) {
    value.integer = integer;
  }
  if (Fits(value, dtype)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("attribute value: ", value.number, " does not fit ", DTypeName(dtype)));
}

bool HasDiagonal(const OpAttrs& attrs, int64_t elements) {
  const int64_t number = attrs.Int("diag_num"), step = attrs.Int("diag_step");
  if (number <= 0) return true;
  return number <= elements && step >= 0 && step < elements && (number - 1) * (step + 1) < elements;
}

}  // namespace weft
