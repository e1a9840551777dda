#include "ops/kernel_util.h"

#include <algorithm>
#include <limits>

#include "base/status_macros.h"
#include "ops/half_arrays.h"

namespace weft {

absl::StatusOr<int> RequiredInput(const KernelSpec& spec, absl::string_view slot) {
  const int index = spec.Input(slot);
  if (index < 0) return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": missing"));
  return index;
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

absl::Status CheckIsRows(absl::string_view slot, const Tensor& tensor) {
  if (tensor.is_rows()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input ", slot, ": expected SelectedRows, found a dense tensor"));
}

absl::Status CheckRowsOf(absl::string_view slot, const Tensor& tensor, DType dtype,
                         const Dims& tall_dims) {
  WEFT_RETURN_IF_ERROR(CheckIsRows(slot, tensor));
  WEFT_RETURN_IF_ERROR(CheckDType(slot, tensor, dtype));
  if (tensor.TallDims() == tall_dims) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input ", slot, ": expected rows of a tensor of shape ", DimsToString(tall_dims),
                   ", found rows of shape ", DimsToString(tensor.TallDims())));
}

absl::StatusOr<int> CheckedAxis(int64_t axis, const Dims& dims) {
  const int64_t rank = dims.size();
  if (axis < -rank || axis >= rank) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attribute axis: ", axis, " is not a dimension of shape ", DimsToString(dims)));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

absl::StatusOr<TensorType> TypeFromAttrs(const KernelSpec& spec) {
  const absl::optional<DType> dtype = DTypeFromProto(spec.attrs.Int("dtype"));
  if (!dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute dtype: ", spec.attrs.Int("dtype"), " is no element type"));
  }
  TensorType type;
  type.dtype = *dtype;
  // The most elements whose bytes, rounded up, fit an int64.
  int64_t room = std::numeric_limits<int64_t>::max() / 64;
  for (int64_t dim : spec.attrs.Ints("shape")) {
    if (dim < 0 || (dim > 0 && (room /= dim) == 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "attribute shape: no tensor can have dimension ", dim, " at ", type.dims.size()));
    }
    type.dims.push_back(dim);
  }
  return type;
}

absl::StatusOr<double> ScalarValue(absl::string_view slot, const Tensor& tensor) {
  WEFT_RETURN_IF_ERROR(CheckSize(slot, tensor, 1));
  if (tensor.is_rows()) {
    return absl::InvalidArgumentError(
        absl::StrCat("input ", slot, ": expected a dense tensor, found SelectedRows"));
  }
  // Without ForElementType, which would build a string: this runs in every step.
  if (tensor.dtype() == DType::kFloat32) return *tensor.data<float>();
  if (tensor.dtype() == DType::kFloat64) return *tensor.data<double>();
  return absl::InvalidArgumentError(
      absl::StrCat("input ", slot, ": expected fp32 or fp64, found ", DTypeName(tensor.dtype())));
}

absl::Status ConvertFloats(absl::string_view from_slot, const Tensor& from,
                           absl::string_view to_slot, Tensor* to) {
  return ForElementType<Float16, BFloat16, float, double>(to_slot, *to, [&](auto to_tag) {
    using To = typename decltype(to_tag)::type;
    return ForElementType<Float16, BFloat16, float, double>(from_slot, from, [&](auto from_tag) {
      using From = typename decltype(from_tag)::type;
      if constexpr (kConvertsArrays<From, To>) {
        ConvertArray(from.data<From>(), to->data<To>(), from.size());
        return absl::OkStatus();
      }
      using Between = std::conditional_t<std::is_class_v<To> || std::is_class_v<From>, float, To>;
      std::transform(from.data<From>(), from.data<From>() + from.size(), to->data<To>(),
                     [](From value) { return static_cast<To>(static_cast<Between>(value)); });
      return absl::OkStatus();
    });
  });
}

}  // namespace weft
