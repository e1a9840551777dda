// Buckets that leave the least communication exposed.
#ifndef WEFT_TRANSPILER_BUCKETS_OPTIMAL_BUCKETS_H_
#define WEFT_TRANSPILER_BUCKETS_OPTIMAL_BUCKETS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transpiler/buckets/collective_time.h"

namespace weft {

struct TimedGradient {
  int64_t bytes = 0;
  double ready = 0;          // seconds since the step began
  bool starts_anew = false;  // no bucket with earlier gradients may take this one
};

struct OptimalBuckets {
  std::vector<int> begins;  // the first gradient of each bucket
  // When the last collective ends, in seconds since the step began; 0 if there are no gradients.
  double finish = 0;
  // No buckets of these gradients, in any order and grouping, end earlier.
  double lower_bound = 0;
};

// The buckets of consecutive gradients whose last collective ends first, where collectives run one
// after the other on one ring, each when its gradients are ready. Backward is busy until the last
// gradient is ready, so that what is exposed is what runs after its end: these buckets leave the
// least of it. Exact, up to rounding. Of buckets that end as early, larger ones are preferred, from
// the last one on, as far as 256 gradients back.
//
//   finish[k] = min over i < k of max(ready[k], finish[i]) + time(bytes of gradients i .. k - 1)
//
// finish never falls with k, so of all i with finish[i] <= ready[k] the last one is best; for the
// others, each linear segment of `time` has a sliding minimum of finish[i] - slope * bytes before
// i.
//
// InvalidArgument unless ready times are finite, >= 0 and never fall, bytes are >= 0, and their sum
// fits into an int64_t.
// O(gradients * segments).
absl::StatusOr<OptimalBuckets> FindOptimalBuckets(absl::Span<const TimedGradient> gradients,
                                                  const CollectiveTime& time);

}  // namespace weft

#endif  // WEFT_TRANSPILER_BUCKETS_OPTIMAL_BUCKETS_H_
