#include "transpiler/buckets/optimal_plan.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "transpiler/buckets/optimal_buckets.h"

namespace weft {
namespace {

// The exact buckets of consecutive gradients among `members`.
absl::Status AddConsecutive(absl::Span<const BucketGradient> gradients,
                            absl::Span<const double> ready, const CollectiveTime& time,
                            const std::vector<int>& members, std::vector<Bucket>* buckets) {
  std::vector<TimedGradient> timed;
  absl::optional<DType> last_type;
  int last = -1;
  for (int i : members) {
    bool starts_anew = last_type.has_value() && *last_type != gradients[i].dtype;
    // What separates gradients separates those before it from those after it, of any type.
    for (int k = last + 1; k <= i; ++k) starts_anew |= gradients[k].starts_anew;
    timed.push_back({gradients[i].bytes, ready[i], starts_anew});
    last_type = gradients[i].dtype;
    last = i;
  }
  WEFT_ASSIGN_OR_RETURN(const OptimalBuckets found, FindOptimalBuckets(timed, time));
  for (size_t b = 0; b < found.begins.size(); ++b) {
    const size_t begin = found.begins[b];
    const size_t end = b + 1 < found.begins.size() ? found.begins[b + 1] : members.size();
    Bucket bucket;
    bucket.members.assign(members.begin() + begin, members.begin() + end);
    bucket.fused = bucket.members.size() > 1;
    bucket.end = end == members.size() ? BucketEnd::kLast : BucketEnd::kFull;
    if (end < members.size() && timed[end].starts_anew) {
      bucket.end = gradients[members[end]].dtype != gradients[members[begin]].dtype
                       ? BucketEnd::kType
                       : BucketEnd::kDependency;
    }
    for (int i : bucket.members) bucket.measure += gradients[i].bytes;
    buckets->push_back(std::move(bucket));
  }
  return absl::OkStatus();
}

double FinishOf(const std::vector<Bucket>& buckets, absl::Span<const BucketGradient> gradients,
                absl::Span<const double> ready, const CollectiveTime& time, int nrings) {
  double finish = 0;
  for (const Interval& run :
       Schedule(CollectivesOf(buckets, gradients, ready, nrings).collectives, time)) {
    finish = std::max(finish, run.end);
  }
  return finish;
}

}  // namespace

double LowerBound(absl::Span<const int64_t> bytes, absl::Span<const double> ready,
                  const CollectiveTime& time, int nrings) {
  double bound = 0;
  double earliest = std::numeric_limits<double>::infinity();
  int64_t sum = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    // Gradients i and those after it are sent from `earliest` on.
    earliest = std::min(earliest, ready[i]);
    sum += bytes[i];
    const int64_t of_one_ring = sum / nrings + (sum % nrings != 0 ? 1 : 0);
    bound = std::max(bound, earliest + time.LeastSeconds(of_one_ring));
  }
  return bound;
}

PlannedCollectives CollectivesOf(const std::vector<Bucket>& buckets,
                                 absl::Span<const BucketGradient> gradients,
                                 absl::Span<const double> ready, int nrings) {
  PlannedCollectives planned;
  std::vector<int> last(buckets.size(), 0);  // the member that is complete last
  for (size_t b = 0; b < buckets.size(); ++b) {
    last[b] = *absl::c_max_element(buckets[b].members);
    planned.order.push_back(static_cast<int>(b));
  }
  absl::c_stable_sort(planned.order, [&](int a, int b) { return last[a] < last[b]; });
  for (size_t turn = 0; turn < planned.order.size(); ++turn) {
    TimedCollective collective;
    for (int i : buckets[planned.order[turn]].members) collective.bytes += gradients[i].bytes;
    collective.ready = ready[last[planned.order[turn]]];
    collective.ring = static_cast<int>(turn % nrings);
    planned.collectives.push_back(collective);
  }
  return planned;
}

absl::StatusOr<OptimalPlan> PlanOptimalBuckets(absl::Span<const BucketGradient> gradients,
                                               absl::Span<const double> ready,
                                               const CollectiveTime& time, int nrings) {
  std::vector<int> all;
  std::vector<Bucket> alone;
  std::map<DType, std::vector<int>> of_type;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int number = static_cast<int>(i);
    if (gradients[i].travels_alone) {
      alone.push_back({{number}, false, BucketEnd::kAlone, gradients[i].bytes});
      continue;
    }
    all.push_back(number);
    of_type[gradients[i].dtype].push_back(number);
  }
  OptimalPlan best;
  best.finish = std::numeric_limits<double>::infinity();
  const auto offer = [&](std::vector<Bucket> buckets, absl::string_view name) {
    const double finish = FinishOf(buckets, gradients, ready, time, nrings);
    if (finish >= best.finish) return;
    best.finish = finish;
    best.plan.buckets = std::move(buckets);
    best.found_by = std::string(name);
  };
  std::vector<Bucket> consecutive = alone;
  WEFT_RETURN_IF_ERROR(AddConsecutive(gradients, ready, time, all, &consecutive));
  offer(std::move(consecutive), "consecutive buckets");
  if (of_type.size() > 1 || nrings > 1) {
    std::vector<Bucket> by_type = alone;
    for (const auto& [dtype, members] : of_type) {
      WEFT_RETURN_IF_ERROR(AddConsecutive(gradients, ready, time, members, &by_type));
    }
    offer(std::move(by_type), "consecutive buckets by element type");
    for (const char* name : {"bytes", "none", "count", "mindspore_size"}) {
      WEFT_ASSIGN_OR_RETURN(const BucketPolicy policy, BucketPolicy::Parse(name));
      WEFT_ASSIGN_OR_RETURN(BucketPlan plan, PlanBuckets(policy, gradients));
      offer(std::move(plan.buckets), name);
    }
  }
  std::vector<int64_t> bytes;
  for (const BucketGradient& gradient : gradients) bytes.push_back(gradient.bytes);
  best.lower_bound = LowerBound(bytes, ready, time, nrings);
  return best;
}

}  // namespace weft
