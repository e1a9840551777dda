// A tensor as rows along one of its dimensions.
#ifndef WEFT_OPS_CPU_AXIS_ROWS_H_
#define WEFT_OPS_CPU_AXIS_ROWS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// Row r starts at Start(r) and has `length` elements, `stride` apart.
struct AxisRows {
  // InvalidArgument where the tensor has no such axis; negative ones count from the right.
  static absl::StatusOr<AxisRows> Along(int64_t axis, const Dims& dims);

  int axis;
  int64_t outer, length, stride;

  bool operator!=(const AxisRows& other) const {
    return outer != other.outer || length != other.length || stride != other.stride;
  }
  int64_t count() const { return outer * stride; }
  int64_t Start(int64_t r) const { return r / stride * length * stride + r % stride; }
};

// For an axis that inference has checked. A scalar is one row of one element.
AxisRows RowsAlong(const Dims& dims, int64_t axis);
// All elements in one row.
AxisRows OneRow(const Dims& dims);

}  // namespace weft

#endif  // WEFT_OPS_CPU_AXIS_ROWS_H_
