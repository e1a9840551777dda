// When collectives run, and how much of that no computation covers.
#ifndef WEFT_TRANSPILER_BUCKETS_TIMELINE_H_
#define WEFT_TRANSPILER_BUCKETS_TIMELINE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "transpiler/buckets/collective_time.h"

namespace weft {

// In seconds since the step began.
struct Interval {
  double begin = 0;
  double end = 0;
};

// A bucket's collective.
struct TimedCollective {
  int64_t bytes = 0;
  double ready = 0;  // when its last gradient is complete
  int ring = 0;
};

// When each collective runs: on its ring one after the other, in the order given, each when it is
// ready. Rings do not slow each other down. O(collectives * log(points)).
std::vector<Interval> Schedule(absl::Span<const TimedCollective> collectives,
                               const CollectiveTime& time);

// The time during which some interval of `communication` runs and none of `computation`. Both may
// overlap and need no order. O(n log n).
double ExposedSeconds(absl::Span<const Interval> communication,
                      absl::Span<const Interval> computation);

}  // namespace weft

#endif  // WEFT_TRANSPILER_BUCKETS_TIMELINE_H_
