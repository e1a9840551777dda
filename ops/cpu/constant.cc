#include "ops/cpu/constant.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/status_macros.h"
#include "ops/kernel_util.h"
#include "ops/schema/filled_values.h"

namespace weft {
namespace {

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
      to = constant.integer ? static_cast<T>(*constant.integer) : static_cast<T>(constant.number);
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
