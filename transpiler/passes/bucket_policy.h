// Which gradients travel in one collective.
#ifndef WEFT_TRANSPILER_PASSES_BUCKET_POLICY_H_
#define WEFT_TRANSPILER_PASSES_BUCKET_POLICY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// Gradients join the open bucket of their element type in the order in which they are complete.
//   none                          each travels alone
//   bytes{first_bytes,max_bytes}  a bucket is full when it holds max_bytes or more, the first of an
//                                 element type when it holds first_bytes: communication starts
//                                 early. As PyTorch's DistributedDataParallel, with its sizes.
//   count{count}                  a bucket is full with `count` gradients. A gradient of another
//                                 element type than the one before it starts a new bucket.
//   paddle_count{count}           the same, counted from the last gradient to the first, as
//   Paddle's
//                                 fuse_all_reduce does: the bucket that is not full is the first.
struct BucketPolicy {
  enum class Kind { kNone, kBytes, kCount, kPaddleCount };
  Kind kind = Kind::kNone;
  int64_t first_bytes = 1 << 20;
  int64_t max_bytes = 25 << 20;
  int count = 128;

  // "bytes{max_bytes=1048576}"; what is left out has its default. InvalidArgument for an unknown
  // policy (lists them) or parameter, or a value below 1 (first_bytes: below 0; 0 is as 1).
  static absl::StatusOr<BucketPolicy> Parse(absl::string_view text);
};
// What Parse takes, for messages.
inline constexpr char kBucketPolicies[] =
    "none, bytes{first_bytes=N,max_bytes=N}, count{count=N} or paddle_count{count=N}";

// A gradient that may share a bucket.
struct BucketCandidate {
  DType dtype = DType::kFloat32;
  int64_t bytes = 0;
  // Buckets with gradients before this one are to be left as they are.
  bool starts_anew = false;
};

// The bucket of each, given in the order in which they are complete. Buckets are counted from 0, in
// the order of their first gradients. O(candidates).
std::vector<int> AssignBuckets(const BucketPolicy& policy,
                               absl::Span<const BucketCandidate> candidates);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_BUCKET_POLICY_H_
