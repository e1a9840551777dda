#include "ops/cpu/constant.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

// A number from attributes: exact if it is an integer.
struct Constant {
  double value;
  absl::optional<int64_t> integer;
};

absl::StatusOr<Constant> ConstantFromAttrs(const OpAttrs& attrs) {
  const std::string& text = attrs.String("str_value");
  Constant constant;
  if (text.empty()) {
    constant.value = attrs.Float("value");
    return constant;
  }
  int64_t integer;
  if (absl::SimpleAtoi(text, &integer)) constant.integer = integer;
  if (!absl::SimpleAtod(text, &constant.value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute str_value: '", text, "' is no number"));
  }
  return constant;
}

// A tensor of one element: the constant.
absl::StatusOr<Tensor> ElementOf(const Constant& constant, DType dtype) {
  Tensor element;
  element.Resize(dtype, {1});
  if (dtype == DType::kComplex64 || dtype == DType::kComplex128) {
    std::memset(element.raw(), 0, element.bytes());  // the imaginary part is 0
    const DType real_dtype = dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
    WEFT_ASSIGN_OR_RETURN(const Tensor real, ElementOf(constant, real_dtype));
    std::memcpy(element.raw(), real.raw(), real.bytes());
    return element;
  }
  WEFT_RETURN_IF_ERROR(ForAnyType("attribute dtype", element, [&](auto tag) -> absl::Status {
    using T = typename decltype(tag)::type;
    T& to = *element.data<T>();
    if constexpr (std::is_same_v<T, bool>) {
      to = constant.value != 0;
    } else if constexpr (std::is_integral_v<T>) {
      constexpr T kLowest = std::numeric_limits<T>::min(), kLargest = std::numeric_limits<T>::max();
      // The upper limit of int64 is not exact as double: ldexp is the first number beyond it.
      const bool fits = constant.integer
                            ? *constant.integer >= kLowest && *constant.integer <= kLargest
                            : std::trunc(constant.value) >= static_cast<double>(kLowest) &&
                                  constant.value < std::ldexp(1.0, std::numeric_limits<T>::digits);
      if (!fits) {
        return absl::InvalidArgumentError(
            absl::StrCat("attribute value: ", constant.value, " does not fit ", DTypeName(dtype)));
      }
      to = constant.integer ? static_cast<T>(*constant.integer) : static_cast<T>(constant.value);
    } else {
      to = static_cast<T>(constant.value);
    }
    return absl::OkStatus();
  }));
  return element;
}

}  // namespace

absl::StatusOr<Tensor> ConstantOf(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const TensorType type, TypeFromAttrs(spec));
  WEFT_ASSIGN_OR_RETURN(const Constant constant, ConstantFromAttrs(spec.attrs));
  return ElementOf(constant, type.dtype);
}

}  // namespace weft
