// The plan of policy `optimal`: gradients of several element types, on several rings.
#ifndef WEFT_TRANSPILER_BUCKETS_OPTIMAL_PLAN_H_
#define WEFT_TRANSPILER_BUCKETS_OPTIMAL_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transpiler/buckets/bucket_planner.h"
#include "transpiler/buckets/collective_time.h"
#include "transpiler/buckets/timeline.h"

namespace weft {

// The collectives of a plan as GradientWriter writes them: in the order in which buckets are
// complete, on the rings in turn. `ready`: by gradient, in seconds since the step began.
struct PlannedCollectives {
  std::vector<int> order;                    // numbers of buckets
  std::vector<TimedCollective> collectives;  // in this order
};
PlannedCollectives CollectivesOf(const std::vector<Bucket>& buckets,
                                 absl::Span<const BucketGradient> gradients,
                                 absl::Span<const double> ready, int nrings);

// No collectives of gradients of these sizes, each sent when it is ready or later, end earlier than
// this, however they are grouped. O(gradients * segments).
double LowerBound(absl::Span<const int64_t> bytes, absl::Span<const double> ready,
                  const CollectiveTime& time, int nrings);

struct OptimalPlan {
  BucketPlan plan;
  double finish = 0;       // when the last collective ends
  double lower_bound = 0;  // no buckets end earlier
  std::string found_by;    // "consecutive buckets", or the policy whose plan was the best
};

// The least exposed communication. With one element type on one ring, exact among buckets of
// consecutive gradients (FindOptimalBuckets). Else the best, by the same times, of: the exact
// buckets of each element type; the exact consecutive ones; and those of bytes, none, count and
// mindspore_size. Others may be better. `ready` never falls. O(gradients * segments).
absl::StatusOr<OptimalPlan> PlanOptimalBuckets(absl::Span<const BucketGradient> gradients,
                                               absl::Span<const double> ready,
                                               const CollectiveTime& time, int nrings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_BUCKETS_OPTIMAL_PLAN_H_
