#include "transpiler/buckets/bucket_planner.h"

#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// The first fusion id that MindSpore makes of split indices.
constexpr int kFirstIndexId = 1024;

// Fusion id and element type: gradients of equal keys may share a bucket.
using Key = std::pair<int, DType>;

int64_t SaturatingSum(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

class BucketPlanner {
 public:
  explicit BucketPlanner(const BucketPolicy& policy) : policy_(policy) {}

  void Offer(int number, const BucketGradient& gradient, absl::optional<int> fusion_id) {
    if (gradient.starts_anew) EndAll(BucketEnd::kDependency);
    const int64_t measure = MeasureOf(gradient);
    const bool is_large = policy_.alone_above.has_value() && measure > *policy_.alone_above;
    const bool is_early = num_offered_++ < policy_.ignore_first;
    if (gradient.travels_alone || is_large || is_early || fusion_id == 0) {
      buckets_.push_back({{number}, false, BucketEnd::kAlone, measure, fusion_id});
      return;
    }
    if (policy_.types == BucketPolicy::Types::kInTurn && last_type_.has_value() &&
        *last_type_ != gradient.dtype) {
      EndAll(BucketEnd::kType);
    }
    last_type_ = gradient.dtype;
    const Key key(fusion_id.value_or(0), gradient.dtype);
    const auto [it, is_new] = open_.try_emplace(key);
    Bucket& bucket = it->second;
    if (is_new) order_.push_back(key);
    bucket.members.push_back(number);
    bucket.fusion_id = fusion_id;
    bucket.measure = SaturatingSum(bucket.measure, measure);
    if (!IsFull(key, bucket)) return;
    last_of_[key] = buckets_.size();
    End(key, BucketEnd::kFull);
    order_.erase(absl::c_find(order_, key));
  }

  std::vector<Bucket> Finish() {
    if (policy_.sorts_tail) {
      absl::c_sort(order_, [](const Key& a, const Key& b) {
        return DTypeName(a.second) < DTypeName(b.second);
      });
    }
    EndAll(policy_.by_fusion_id ? BucketEnd::kFusionId : BucketEnd::kLast);
    if (policy_.by_first) {
      absl::c_stable_sort(buckets_, [](const Bucket& a, const Bucket& b) {
        return a.members.front() < b.members.front();
      });
    }
    for (Bucket& bucket : buckets_) {
      bucket.fused =
          bucket.members.size() > 1 || (policy_.fuses_single && bucket.end != BucketEnd::kAlone);
    }
    return std::move(buckets_);
  }

 private:
  int64_t MeasureOf(const BucketGradient& gradient) const {
    switch (policy_.measure) {
      case BucketPolicy::Measure::kGradients:
        return 1;
      case BucketPolicy::Measure::kElements:
        return gradient.elements;
      case BucketPolicy::Measure::kBytes:
        return gradient.bytes;
    }
    return 0;
  }

  bool IsFull(const Key& key, const Bucket& bucket) const {
    const bool is_first = last_of_.count(key) == 0;
    const absl::optional<int64_t> limit =
        is_first && policy_.first_limit.has_value() ? policy_.first_limit : policy_.limit;
    if (!limit.has_value()) return false;
    return policy_.ends_above ? bucket.measure > *limit : bucket.measure >= *limit;
  }

  void End(const Key& key, BucketEnd why) {
    const auto it = open_.find(key);
    it->second.end = why;
    buckets_.push_back(std::move(it->second));
    open_.erase(it);
  }

  void EndAll(BucketEnd why) {
    for (const Key& key : order_) {
      const auto last = last_of_.find(key);
      const bool joins = why == BucketEnd::kLast && policy_.joins_empty_tail &&
                         last != last_of_.end() && open_[key].measure == 0;
      if (joins) {
        std::vector<int>& members = buckets_[last->second].members;
        absl::c_copy(open_[key].members, std::back_inserter(members));
        open_.erase(key);
      } else {
        End(key, why);
      }
    }
    order_.clear();
  }

  const BucketPolicy& policy_;
  std::map<Key, Bucket> open_;
  std::vector<Key> order_;         // of the open buckets
  std::map<Key, size_t> last_of_;  // the last full bucket
  std::vector<Bucket> buckets_;    // that have ended
  absl::optional<DType> last_type_;
  int num_offered_ = 0;
};

// Where MindSpore takes the fusion ids of gradients from.
enum class FusionScheme { kCommFusion, kSplitIndices, kOneId };

FusionScheme FusionSchemeOf(const BucketPolicy& policy,
                            absl::Span<const BucketGradient> gradients) {
  const bool differ = absl::c_any_of(gradients, [&](const BucketGradient& gradient) {
    return gradient.comm_fusion != gradients[0].comm_fusion;
  });
  const bool counts = policy.honour_comm_fusion && !gradients.empty() &&
                      gradients[0].comm_fusion != BucketGradient().comm_fusion;
  const bool is_by_index = policy.parallel_optimizer && !policy.split_indices.empty();
  if (is_by_index) return FusionScheme::kSplitIndices;
  if (differ || counts) return FusionScheme::kCommFusion;
  return policy.split_indices.empty() || policy.fusion_type != 1 ? FusionScheme::kOneId
                                                                 : FusionScheme::kSplitIndices;
}

// Warns of split indices beyond the last parameter. O(parameters).
std::vector<int> FusionIds(const BucketPolicy& policy, FusionScheme scheme,
                           absl::Span<const BucketGradient> gradients,
                           std::vector<std::string>* warnings) {
  std::vector<int> ids;
  if (scheme == FusionScheme::kCommFusion) {
    for (const BucketGradient& gradient : gradients) ids.push_back(gradient.comm_fusion);
    return ids;
  }
  if (scheme == FusionScheme::kOneId) return std::vector<int>(gradients.size(), policy.fusion_type);
  int id = kFirstIndexId;
  size_t next = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    ids.push_back(id);
    if (next == policy.split_indices.size() || i < size_t(policy.split_indices[next])) continue;
    ++next;
    ++id;
  }
  for (int index : policy.split_indices) {
    if (static_cast<size_t>(index) < gradients.size()) continue;
    warnings->push_back(
        absl::StrCat("split index ", index, " is beyond the ", gradients.size(), " gradients"));
  }
  return ids;
}

}  // namespace

absl::StatusOr<BucketPlan> PlanBuckets(const BucketPolicy& policy,
                                       absl::Span<const BucketGradient> gradients) {
  if (policy.is_optimal()) {
    return absl::InvalidArgumentError(
        "policy optimal needs times: when gradients are ready, and "
        "how long collectives take");
  }
  BucketPlan plan;
  std::vector<int> ids;
  if (policy.by_fusion_id) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].comm_fusion >= 0) continue;
      return absl::InvalidArgumentError(absl::StrCat("gradient ", i,
                                                     ": expected comm_fusion >= 0, "
                                                     "found ",
                                                     gradients[i].comm_fusion));
    }
    const FusionScheme scheme = FusionSchemeOf(policy, gradients);
    plan.numbers_gradients = scheme != FusionScheme::kOneId;
    ids = FusionIds(policy, scheme, gradients, &plan.warnings);
  }
  BucketPlanner planner(policy);
  const auto id_of = [&](size_t i) {
    return ids.empty() ? absl::nullopt : absl::optional<int>(ids[i]);
  };
  const size_t count = gradients.size();
  for (size_t k = 0; k < count; ++k) {
    const size_t i = policy.from_last ? count - 1 - k : k;
    BucketGradient gradient = gradients[i];
    // Backwards, a gradient that starts anew separates those before it from those after it.
    if (policy.from_last) gradient.starts_anew = i + 1 < count && gradients[i + 1].starts_anew;
    planner.Offer(static_cast<int>(i), gradient, id_of(i));
  }
  plan.buckets = planner.Finish();
  return plan;
}

std::string Describe(const BucketPolicy& policy, const Bucket& bucket) {
  static constexpr const char* kUnits[] = {"gradients", "elements", "bytes"};
  switch (bucket.end) {
    case BucketEnd::kAlone:
      return "travels alone";
    case BucketEnd::kFull:
      if (policy.is_optimal()) return "with the next gradient, communication would end later";
      return absl::StrCat("full: ", bucket.measure, " ", kUnits[static_cast<int>(policy.measure)]);
    case BucketEnd::kType:
      return "the next gradient has another element type";
    case BucketEnd::kDependency:
      return "a gradient is used before the next one is complete";
    case BucketEnd::kFusionId:
      return absl::StrCat("fusion id ", bucket.fusion_id.value_or(0));
    case BucketEnd::kLast:
      return "no gradient of its kind is left";
  }
  return "";
}

}  // namespace weft
