// What most kernels need: slots that must be there, scalars held by tensors, element types.
#ifndef WEFT_OPS_KERNEL_UTIL_H_
#define WEFT_OPS_KERNEL_UTIL_H_

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ops/kernel.h"
#include "ops/tensor.h"

namespace weft {

// The index of the variable of a slot that the kernel cannot do without; InvalidArgument where
// there is none.
absl::StatusOr<int> RequiredInput(const KernelSpec& spec, absl::string_view slot);
absl::StatusOr<int> RequiredOutput(const KernelSpec& spec, absl::string_view slot);
// The same of a slot that may hold several variables.
absl::StatusOr<KernelSpec::Slot> RequiredInputs(const KernelSpec& spec, absl::string_view slot);

// Unimplemented where one of the slots names a variable: the kernel would not read it.
absl::Status NoInputs(const KernelSpec& spec, std::initializer_list<absl::string_view> slots);

// InvalidArgument where a tensor does not have as many elements, the element type or the shape that
// is expected.
absl::Status CheckSize(absl::string_view slot, const Tensor& tensor, int64_t expected);
absl::Status CheckDType(absl::string_view slot, const Tensor& tensor, DType expected);
absl::Status CheckDims(absl::string_view slot, const Tensor& tensor, const Dims& expected);

// Attribute `axis` of a tensor of these dims, counted from the left; negative ones count from the
// right. InvalidArgument where there is no such axis.
absl::StatusOr<int> CheckedAxis(int64_t axis, const Dims& dims);

template <typename T>
struct TypeTag {
  using type = T;
};

// Calls `run(TypeTag<T>())`, which returns absl::Status, with that T of Ts which is the element
// type of `tensor`; Unimplemented, naming `slot`, where there is none.
template <typename... Ts, typename Run>
absl::Status ForElementType(absl::string_view slot, const Tensor& tensor, Run run) {
  absl::Status status;
  const bool found =
      ((tensor.dtype() == DTypeOf<Ts>::value && (status = run(TypeTag<Ts>()), true)) || ...);
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

// An operand for +, - and * whose result, cast back to T, wraps around on overflow where T is an
// integer type: signed overflow is undefined.
template <typename T>
auto Wrapping(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::make_unsigned_t<T>>(x);
  } else {
    return x;
  }
}

// `value` as T; where T is an integer type without the fraction, and the nearest limit beyond one
// (0 if it is not a number).
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

// Added up in double precision, one after the other.
template <typename T>
double SumOfSquares(const T* values, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

// The value of a floating-point tensor of one element: a learning rate, a power of beta.
absl::StatusOr<double> ScalarValue(absl::string_view slot, const Tensor& tensor);

}  // namespace weft

#endif  // WEFT_OPS_KERNEL_UTIL_H_
