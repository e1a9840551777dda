#include "ops/kernel_util.h"

#include "base/status_macros.h"

namespace weft {

absl::StatusOr<int> RequiredInput(const KernelSpec& spec, absl::string_view slot) {
  const int index = spec.Input(slot);
  if (index < 0) return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": missing"));
  return index;
}

absl::StatusOr<int> RequiredOutput(const KernelSpec& spec, absl::string_view slot) {
  const int index = spec.Output(slot);
  if (index < 0) return absl::InvalidArgumentError(absl::StrCat("output ", slot, ": missing"));
  return index;
}

absl::StatusOr<KernelSpec::Slot> RequiredInputs(const KernelSpec& spec, absl::string_view slot) {
  WEFT_RETURN_IF_ERROR(RequiredInput(spec, slot).status());
  return spec.inputs.at(slot);
}

absl::Status NoInputs(const KernelSpec& spec, std::initializer_list<absl::string_view> slots) {
  for (absl::string_view slot : slots) {
    if (spec.Input(slot) >= 0) {
      return absl::UnimplementedError(
          absl::StrCat("input ", slot, ": the CPU kernel does not take it"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSize(absl::string_view slot, const Tensor& tensor, int64_t expected) {
  if (tensor.size() == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": expected ", expected,
                                                 " elements, found shape ",
                                                 DimsToString(tensor.dims())));
}

absl::Status CheckDType(absl::string_view slot, const Tensor& tensor, DType expected) {
  if (tensor.dtype() == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": expected ", DTypeName(expected),
                                                 ", found ", DTypeName(tensor.dtype())));
}

absl::Status CheckDims(absl::string_view slot, const Tensor& tensor, const Dims& expected) {
  if (tensor.dims() == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": expected shape ",
                                                 DimsToString(expected), ", found ",
                                                 DimsToString(tensor.dims())));
}

absl::StatusOr<int> CheckedAxis(int64_t axis, const Dims& dims) {
  const int64_t rank = dims.size();
  if (axis < -rank || axis >= rank) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attribute axis: ", axis, " is not a dimension of shape ", DimsToString(dims)));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

absl::StatusOr<double> ScalarValue(absl::string_view slot, const Tensor& tensor) {
  WEFT_RETURN_IF_ERROR(CheckSize(slot, tensor, 1));
  if (tensor.is_rows()) {
    return absl::InvalidArgumentError(
        absl::StrCat("input ", slot, ": expected a dense tensor, found SelectedRows"));
  }
  // No string is put together where there is no error: this runs in every step.
  if (tensor.dtype() == DType::kFloat32) return *tensor.data<float>();
  if (tensor.dtype() == DType::kFloat64) return *tensor.data<double>();
  return absl::InvalidArgumentError(
      absl::StrCat("input ", slot, ": expected fp32 or fp64, found ", DTypeName(tensor.dtype())));
}

}  // namespace weft
