#include "ops/schema/filled_values.h"

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft {

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
  const bool is_integer = !IsFloating(dtype) && dtype != DType::kBool &&
                          dtype != DType::kComplex64 && dtype != DType::kComplex128;
  if (!is_integer || std::isfinite(value.number)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("attribute value: ", value.number, " does not fit ", DTypeName(dtype)));
}

bool HasDiagonal(const OpAttrs& attrs, int64_t elements) {
  const int64_t number = attrs.Int("diag_num"), step = attrs.Int("diag_step");
  if (number <= 0) return true;
  return number <= elements && step >= 0 && step < elements && (number - 1) * (step + 1) < elements;
}

}  // namespace weft
