#include "ops/cpu/constant.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/status_macros.h"
#include "ops/kernel_util.h"
#include "ops/schema/filled_values.h"

namespace weft {
namespace {

// As Paddle's kernels convert numbers on x86: what does not fit 32 bits (64, for T that have no
// fewer) becomes their lowest number, and narrower integers keep the low bits.
template <typename T>
T Truncated(double number) {
  using Wide = std::conditional_t<sizeof(T) < 8 && !std::is_same_v<T, uint32_t>, int32_t, int64_t>;
  constexpr Wide kLowest = std::numeric_limits<Wide>::min();
  const double limit = std::ldexp(1.0, std::numeric_limits<Wide>::digits);  // the first beyond
  const bool fits = std::trunc(number) >= static_cast<double>(kLowest) && number < limit;
  return static_cast<T>(fits ? static_cast<Wide>(number) : kLowest);
}

// A tensor of one element: the constant.
absl::StatusOr<Tensor> ElementOf(const FilledValue& constant, DType dtype) {
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
      to = constant.number != 0;
    } else if constexpr (std::is_integral_v<T>) {
      // As double, a number of 64 bits is not exact.
      const bool is_exact = sizeof(T) == 8 && constant.integer;
      to = is_exact ? static_cast<T>(*constant.integer) : Truncated<T>(constant.number);
    } else {
      to = static_cast<T>(constant.number);
    }
    return absl::OkStatus();
  }));
  return element;
}

}  // namespace

absl::StatusOr<Tensor> ConstantOf(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const TensorType type, TypeFromAttrs(spec));
  WEFT_ASSIGN_OR_RETURN(const FilledValue constant, ReadFilledValue(spec.attrs, type.dtype));
  return ElementOf(constant, type.dtype);
}

}  // namespace weft
