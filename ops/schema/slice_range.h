// The elements that a slice takes along a dimension.
#ifndef WEFT_OPS_SCHEMA_SLICE_RANGE_H_
#define WEFT_OPS_SCHEMA_SLICE_RANGE_H_

#include <algorithm>
#include <cstdint>
#include <limits>

namespace weft {

struct SliceRange {
  int64_t begin = 0;
  int64_t count = 0;
};

// Whether an end with a negative step is before the first element, of any size. Paddle 2 writes an
// open end as -1, Paddle 3 as the lowest number. (Inference refuses a -1 of Paddle 3.)
inline bool IsOpenEnd(int64_t end) {
  return end == -1 || end <= std::numeric_limits<int32_t>::min();
}

// Whether versions of Paddle take different elements with a negative step: 2.6 stops after the
// first element, 3.3 takes it, too.
inline bool IsAmbiguousEnd(int64_t end, int64_t size) { return end < -size && !IsOpenEnd(end); }

// Every `step`-th element from `start` to `end`, exclusive. Negative positions count from the
// right, except open ends with a negative step. Both are cut off at the ends of the dimension,
// which has `size` elements. `step` is not 0.
inline SliceRange TakeSlice(int64_t start, int64_t end, int64_t step, int64_t size) {
  if (start < 0) start += size;
  if (step < 0 && IsOpenEnd(end)) {
    end = -1;
  } else if (end < 0) {
    end = std::max<int64_t>(end + size, 0);
  }
  if (step > 0) {
    start = std::min(std::max<int64_t>(start, 0), size);
    end = std::min(end, size);
    return {start, std::max<int64_t>(0, (end - start + step - 1) / step)};
  }
  start = std::min(start, size - 1);
  return {std::max<int64_t>(start, 0), std::max<int64_t>(0, (start - end - step - 1) / -step)};
}

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_SLICE_RANGE_H_
