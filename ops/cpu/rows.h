// Shared by kernels for row-sparse tensors (SelectedRows): checks, and updates row by row.
#ifndef WEFT_OPS_CPU_ROWS_H_
#define WEFT_OPS_CPU_ROWS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"

namespace weft {

// InvalidArgument unless the tensor is_rows().
absl::Status CheckIsRows(absl::string_view slot, const Tensor& tensor);
// InvalidArgument unless it is rows of a tensor of this type.
absl::Status CheckRowsOf(absl::string_view slot, const Tensor& tensor, DType dtype,
                         const Dims& tall_dims);

}  // namespace weft

#endif  // WEFT_OPS_CPU_ROWS_H_
