// Places values in one block of memory, such that those that live at the same time do not overlap.
#ifndef WEFT_EXECUTOR_ARENA_H_
#define WEFT_EXECUTOR_ARENA_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace weft {

// A value that lives from position `first` to `last`, both included.
struct ArenaValue {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct ArenaLayout {
  std::vector<int64_t> offsets;  // of the values; multiples of kArenaAlignment
  int64_t bytes = 0;             // of the arena
  // The most that lives at one position, with sizes rounded up to the alignment: no layout is
  // smaller.
  int64_t live_bytes = 0;
};

inline constexpr int64_t kArenaAlignment = 64;

// Places large values first, each as low as possible. Behind values from kSkewedBytes
// (ops/memory.h) on, kSkew bytes stay free. O(n²) for n values with n log n at best: n² counts
// pairs of values of which the earlier placed ones live at the same time.
ArenaLayout PlaceInArena(absl::Span<const ArenaValue> values);

}  // namespace weft

#endif  // WEFT_EXECUTOR_ARENA_H_
