// What most CPU kernels need: slots that must be there, scalars held by tensors, element types.
#ifndef WEFT_OPS_CPU_KERNEL_UTIL_H_
#define WEFT_OPS_CPU_KERNEL_UTIL_H_

#include <cstdint>
#include <initializer_list>

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

// Unimplemented where one of the slots names a variable: the kernel would not read it.
absl::Status NoInputs(const KernelSpec& spec, std::initializer_list<absl::string_view> slots);

// InvalidArgument where a tensor does not have as many elements as expected.
absl::Status CheckSize(absl::string_view slot, const Tensor& tensor, int64_t expected);

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

// The value of a floating-point tensor of one element: a learning rate, a power of beta.
absl::StatusOr<double> ScalarValue(absl::string_view slot, const Tensor& tensor);

}  // namespace weft

#endif  // WEFT_OPS_CPU_KERNEL_UTIL_H_
