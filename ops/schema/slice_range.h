// The elements that a slice takes along a dimension.
#ifndef WEFT_OPS_SCHEMA_SLICE_RANGE_H_
#define WEFT_OPS_SCHEMA_SLICE_RANGE_H_

#include <algorithm>
#include <cstdint>

namespace weft {

struct SliceRange {
  int64_t begin = 0;
  int64_t count = 0;
};

// Every `step`-th element from `start` to `end`, exclusive. Negative positions count from the
// right, except an end of -1 with a negative step, which is before the first element. Both are cut
// off at the ends of the dimension, which has `size` elements. `step` is not 0.
inline SliceRange TakeSlice(int64_t start, int64_t end, int64_t step, int64_t size) {
  if (start < 0) start += size;
  if (end < 0 && !(end == -1 && step < 0)) end = std::max<int64_t>(end + size, 0);
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
