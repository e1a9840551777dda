// A tensor as rows along one of its dimensions.
#ifndef WEFT_OPS_CPU_AXIS_ROWS_H_
#define WEFT_OPS_CPU_AXIS_ROWS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/kernel_util.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// Row r starts at Start(r) and has `length` elements, `stride` apart.
struct AxisRows {
  // InvalidArgument if the tensor has no such axis; negative axes count from the right.
  static absl::StatusOr<AxisRows> Along(int64_t axis, const Dims& dims) {
    AxisRows rows;
    WEFT_ASSIGN_OR_RETURN(rows.axis, CheckedAxis(axis, dims));
    const auto all = absl::MakeConstSpan(dims);
    rows.outer = NumElements(all.first(rows.axis));
    rows.length = dims[rows.axis];
    rows.stride = NumElements(all.subspan(rows.axis + 1));
    return rows;
  }

  int axis;
  int64_t outer, length, stride;

  bool operator!=(const AxisRows& other) const {
    return outer != other.outer || length != other.length || stride != other.stride;
  }
  int64_t count() const { return outer * stride; }
  int64_t Start(int64_t r) const { return r / stride * length * stride + r % stride; }
};

// All elements in one row.
inline AxisRows OneRow(const Dims& dims) { return *AxisRows::Along(0, {NumElements(dims)}); }
// For an axis that inference has checked. A scalar is one row of one element.
inline AxisRows RowsAlong(const Dims& dims, int64_t axis) {
  return dims.empty() ? OneRow(dims) : *AxisRows::Along(axis, dims);
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_AXIS_ROWS_H_
