#include "ops/cpu/axis_rows.h"

#include "base/status_macros.h"
#include "ops/kernel_util.h"

namespace weft {

absl::StatusOr<AxisRows> AxisRows::Along(int64_t axis, const Dims& dims) {
  AxisRows rows;
  WEFT_ASSIGN_OR_RETURN(rows.axis, CheckedAxis(axis, dims));
  const auto all = absl::MakeConstSpan(dims);
  rows.outer = NumElements(all.first(rows.axis));
  rows.length = dims[rows.axis];
  rows.stride = NumElements(all.subspan(rows.axis + 1));
  return rows;
}

AxisRows RowsAlong(const Dims& dims, int64_t axis) {
  return dims.empty() ? OneRow(dims) : *AxisRows::Along(axis, dims);
}

AxisRows OneRow(const Dims& dims) { return *AxisRows::Along(0, {NumElements(dims)}); }

}  // namespace weft
