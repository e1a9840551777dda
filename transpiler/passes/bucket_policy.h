// Which gradients share a collective.
#ifndef WEFT_TRANSPILER_PASSES_BUCKET_POLICY_H_
#define WEFT_TRANSPILER_PASSES_BUCKET_POLICY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// Gradients join the open bucket of their element type in the order of completion.
//   none                          one gradient per bucket
//   bytes{first_bytes,max_bytes}  a bucket is full at max_bytes; the first of an element type at
//                                 first_bytes, so that communication starts early. The policy and
//                                 sizes of PyTorch's DistributedDataParallel.
//   count{count}                  a bucket is full with `count` gradients. A change of element type
//                                 starts a new bucket.
//   paddle_count{count}           like count, but from the last gradient to the first, as Paddle's
//                                 fuse_all_reduce: the first bucket is the one that is not full
struct BucketPolicy {
  enum class Kind { kNone, kBytes, kCount, kPaddleCount };
  Kind kind = Kind::kNone;
  int64_t first_bytes = 1 << 20;
  int64_t max_bytes = 25 << 20;
  int count = 128;

  // "bytes{max_bytes=1048576}"; other parameters have their defaults. InvalidArgument for an
  // unknown policy (lists them) or parameter, or a value below 1 (first_bytes: below 0).
  static absl::StatusOr<BucketPolicy> Parse(absl::string_view text);
};
// The forms that Parse accepts, for messages.
inline constexpr char kBucketPolicies[] =
    "none, bytes{first_bytes=N,max_bytes=N}, count{count=N} or paddle_count{count=N}";

struct BucketCandidate {
  DType dtype = DType::kFloat32;
  int64_t bytes = 0;
  // No bucket with earlier gradients may take this one.
  bool starts_anew = false;
};

// The bucket of each candidate; candidates are in the order of completion. Buckets count from 0, in
// the order of their first gradients. O(candidates).
std::vector<int> AssignBuckets(const BucketPolicy& policy,
                               absl::Span<const BucketCandidate> candidates);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_BUCKET_POLICY_H_
