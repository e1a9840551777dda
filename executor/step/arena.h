// Places values in one block of memory, such that those that live at the same time do not overlap.
#ifndef WEFT_EXECUTOR_STEP_ARENA_H_
#define WEFT_EXECUTOR_STEP_ARENA_H_

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

// More pairs of values than these that live at the same time make placing by size slow (a second).
inline constexpr int64_t kMostArenaPairs = int64_t{1} << 24;

// Places large values first, each as low as possible; or, with more pairs than `most_pairs`, in the
// order in which they begin, each in the smallest free part. Behind values from kSkewedBytes
// (ops/memory.h) on, kSkew bytes stay free. O((n + pairs) log n) for n values and at most
// `most_pairs` pairs.
ArenaLayout PlaceInArena(absl::Span<const ArenaValue> values, int64_t most_pairs = kMostArenaPairs);

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_ARENA_H_
