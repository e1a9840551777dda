// Helpers of most kernels: required slots, scalars held by tensors, dispatch on element types.
#ifndef WEFT_OPS_KERNEL_UTIL_H_
#define WEFT_OPS_KERNEL_UTIL_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ops/host_device.h"
#include "ops/kernel.h"
#include "ops/tensor.h"
#include "ops/vectorize.h"

namespace weft {

// The index of the variable of a required input; InvalidArgument if the slot is empty.
absl::StatusOr<int> RequiredInput(const KernelSpec& spec, absl::string_view slot);

// InvalidArgument unless a tensor has the expected number of elements, element type or shape.
absl::Status CheckSize(absl::string_view slot, const Tensor& tensor, int64_t expected);
absl::Status CheckDType(absl::string_view slot, const Tensor& tensor, DType expected);
absl::Status CheckDims(absl::string_view slot, const Tensor& tensor, const Dims& expected);

// InvalidArgument unless the tensor is_rows(); of a tensor of this type.
absl::Status CheckIsRows(absl::string_view slot, const Tensor& tensor);
absl::Status CheckRowsOf(absl::string_view slot, const Tensor& tensor, DType dtype,
                         const Dims& tall_dims);

// Attribute `axis` of a tensor of these dims, counted from the left; negative axes count from the
// right. InvalidArgument for an axis outside of the dims.
absl::StatusOr<int> CheckedAxis(int64_t axis, const Dims& dims);

// The type of the tensor that a creation op makes, from attributes `shape` and `dtype`.
// InvalidArgument for an unknown element type, a negative dimension, or a size beyond the address
// space.
absl::StatusOr<TensorType> TypeFromAttrs(const KernelSpec& spec);

template <typename T>
struct TypeTag {
  using type = T;
};

// Calls `run(TypeTag<T>())`, which returns absl::Status, with the T of Ts that is the element type
// of `tensor`; Unimplemented, with `slot`, for other element types.
template <typename... Ts, typename Run>
absl::Status ForElementType(absl::string_view slot, const Tensor& tensor, Run run) {
  absl::Status status;
  const bool found = ((tensor.dtype() == DTypeOf<Ts>::value &&
                       (static_cast<void>(status = run(TypeTag<Ts>())), true)) ||
                      ...);
  if (found) return status;
  return absl::UnimplementedError(
      absl::StrCat(slot, ": no kernel for element type ", DTypeName(tensor.dtype())));
}

template <typename Run>
absl::Status ForFloatType(absl::string_view slot, const Tensor& tensor, Run run) {
  return ForElementType<float, double>(slot, tensor, run);
}

template <typename Run>
absl::Status ForNumberType(absl::string_view slot, const Tensor& tensor, Run run) {
  return ForElementType<float, double, int32_t, int64_t>(slot, tensor, run);
}

template <typename Run>
absl::Status ForArithmeticType(absl::string_view slot, const Tensor& tensor, Run run) {
  return ForElementType<float, double, int32_t, int64_t, int8_t, uint8_t, int16_t, bool>(
      slot, tensor, run);
}

template <typename Run>
absl::Status ForAnyType(absl::string_view slot, const Tensor& tensor, Run run) {
  return ForElementType<float, double, int32_t, int64_t, int8_t, uint8_t, int16_t, bool, Float16,
                        BFloat16>(slot, tensor, run);
}

inline bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// Writes the elements of `from` to `to`, which has its floating-point type and size already.
// Conversions of half precision go through fp32.
absl::Status ConvertFloats(absl::string_view from_slot, const Tensor& from,
                           absl::string_view to_slot, Tensor* to);

// An operand for +, - and * whose result, cast back to T, wraps around on overflow if T is an
// integer type: signed overflow is undefined.
template <typename T>
WEFT_HOST_DEVICE auto Wrapping(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::make_unsigned_t<T>>(x);
  } else {
    return x;
  }
}

// `value` as T. An integer T drops the fraction; it gets the nearest limit for a value beyond its
// range, and 0 for NaN.
template <typename T>
T Saturated(double value) {
  if constexpr (std::is_integral_v<T>) {
    if (std::isnan(value)) return 0;
    if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
      return std::numeric_limits<T>::min();
    }
    // The upper limit of int64 is not exact as double; the first number beyond is.
    if (value >= std::ldexp(1.0, std::numeric_limits<T>::digits)) {
      return std::numeric_limits<T>::max();
    }
  }
  return static_cast<T>(value);
}

// In double precision.
template <typename T>
double SumOfSquares(const T* values, int64_t size) {
  return SumOf<T>(size, [=](int64_t i) { return static_cast<double>(values[i]) * values[i]; });
}

// The value of a floating-point tensor of one element: a learning rate, a power of beta.
absl::StatusOr<double> ScalarValue(absl::string_view slot, const Tensor& tensor);

// The value of a tensor of one element of type T.
template <typename T>
absl::StatusOr<T> OneValue(absl::string_view slot, const Tensor& tensor) {
  if (absl::Status s = CheckDType(slot, tensor, DTypeOf<T>::value); !s.ok()) return s;
  if (absl::Status s = CheckSize(slot, tensor, 1); !s.ok()) return s;
  return *tensor.data<T>();
}

}  // namespace weft

#endif  // WEFT_OPS_KERNEL_UTIL_H_
