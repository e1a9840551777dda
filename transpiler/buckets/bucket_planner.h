// Decides which gradients travel together.
#ifndef WEFT_TRANSPILER_BUCKETS_BUCKET_PLANNER_H_
#define WEFT_TRANSPILER_BUCKETS_BUCKET_PLANNER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/schema/tensor_type.h"
#include "transpiler/buckets/bucket_policy.h"

namespace weft {

struct BucketGradient {
  DType dtype = DType::kFloat32;
  int64_t elements = 0;
  int64_t bytes = 0;
  // No bucket with earlier gradients may take this one: one of them is used before this one is
  // complete.
  bool starts_anew = false;
  bool travels_alone = false;  // such as rows, whose number differs from rank to rank
  int comm_fusion = 1;         // MindSpore's Parameter.comm_fusion; 0: never fused
};

// Why a bucket takes no further gradient.
enum class BucketEnd {
  kAlone,       // its gradient must, or by the policy shall, travel alone
  kFull,        // it measures what the policy allows
  kType,        // the next gradient has another element type
  kDependency,  // a member is used before the next gradient is complete
  kFusionId,    // the next gradient has another fusion id
  kLast,        // no gradient of its kind is left
};

struct Bucket {
  std::vector<int> members;  // numbers of gradients, in the order in which they joined
  bool fused = false;        // members are slices of one buffer
  BucketEnd end = BucketEnd::kLast;
  int64_t measure = 0;                 // in the policy's unit
  absl::optional<int> fusion_id = {};  // MindSpore
};

struct BucketPlan {
  std::vector<Bucket> buckets;
  bool numbers_gradients = false;  // MindSpore: fusion ids differ by parameter, or by split indices
  std::vector<std::string> warnings;
};

// The buckets of gradients, which are in the order in which the policy sees them: of parameters
// for `mindspore`, of completion for the others. Every gradient is in one bucket; those of a bucket
// have the same element type. InvalidArgument for a negative comm_fusion, and for `optimal`, which
// needs times. O(gradients * log(element types)).
absl::StatusOr<BucketPlan> PlanBuckets(const BucketPolicy& policy,
                                       absl::Span<const BucketGradient> gradients);

// Why the bucket takes no further gradient: "full: 26214404 bytes".
std::string Describe(const BucketPolicy& policy, const Bucket& bucket);

}  // namespace weft

#endif  // WEFT_TRANSPILER_BUCKETS_BUCKET_PLANNER_H_
