// What attributes fill a tensor with.
#ifndef WEFT_OPS_SCHEMA_FILLED_VALUES_H_
#define WEFT_OPS_SCHEMA_FILLED_VALUES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/tensor_type.h"

namespace weft {

struct FilledValue {
  double number;
  absl::optional<int64_t> integer;  // exactly, if it is one
};

// Attribute str_value of fill_constant, or value if that is empty. InvalidArgument, with the
// attribute, if it is no number, or not finite for integers.
absl::StatusOr<FilledValue> ReadFilledValue(const OpAttrs& attrs, DType dtype);

// Whether a tensor has room for the diagonal of uniform_random: diag_num elements, diag_step
// elements between two of them.
bool HasDiagonal(const OpAttrs& attrs, int64_t elements);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_FILLED_VALUES_H_
