#include "ops/cpu/rows.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/kernel_util.h"

namespace weft {

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

}  // namespace weft
