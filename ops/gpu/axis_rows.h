// A tensor as rows along one of its dimensions, on the device.
#ifndef WEFT_OPS_GPU_AXIS_ROWS_H_
#define WEFT_OPS_GPU_AXIS_ROWS_H_

#include <cstdint>

#include "ops/cpu/axis_rows.h"
#include "ops/gpu/block.h"

namespace weft::gpu {

// Row r starts at Start(r) and has `length` elements, `stride` apart.
struct Rows {
  int64_t length, stride;

  explicit Rows(const AxisRows& rows) : length(rows.length), stride(rows.stride) {}
  WEFT_DEVICE int64_t Start(int64_t r) const { return r / stride * length * stride + r % stride; }
  // The position of element i of row r.
  WEFT_DEVICE int64_t At(int64_t r, int64_t i) const { return Start(r) + i * stride; }
};

}  // namespace weft::gpu

#endif  // WEFT_OPS_GPU_AXIS_ROWS_H_
