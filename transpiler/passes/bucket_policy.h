// Which gradients travel in one collective.
#ifndef WEFT_TRANSPILER_PASSES_BUCKET_POLICY_H_
#define WEFT_TRANSPILER_PASSES_BUCKET_POLICY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// Gradients join the open bucket of their element type in the order in which they are complete.
//   none                          each travels alone
//   bytes{first_bytes,max_bytes}  a bucket is full when it holds max_bytes or more, the first of an
//                                 element type when it holds first_bytes: communication starts
//                                 early. As PyTorch's DistributedDataParallel, with its sizes.
//   count{count}                  a bucket is full with `count` gradients. A gradient of another
//                                 element type than the one before it starts a new bucket. As
//                                 Paddle's fuse_all_reduce, which counts from the last gradient on.
struct BucketPolicy {
  enum class Kind { kNone, kBytes, kCount };
  Kind kind = Kind::kNone;
  int64_t first_bytes = 1 << 20;
  int64_t max_bytes = 25 << 20;
  int count = 128;

  // "bytes{max_bytes=1048576}"; what is left out has its default. InvalidArgument for an unknown
  // policy (lists them) or parameter, or a value below 1.
  static absl::StatusOr<BucketPolicy> Parse(absl::string_view text);
};
// What Parse takes, for messages.
inline constexpr char kBucketPolicies[] =
    "none, bytes{first_bytes=N,max_bytes=N} or count{count=N}";

// Fills buckets, one gradient after the other.
class BucketFiller {
 public:
  explicit BucketFiller(const BucketPolicy& policy) : policy_(policy) {}

  // The number of the bucket, counted from 0, that a gradient of this element type and size goes
  // into.
  int Add(DType dtype, int64_t bytes);
  // No gradient joins the open bucket of this element type any more.
  void Close(DType dtype) { open_[Index(dtype)].bucket = -1; }

 private:
  struct Open {
    int bucket = -1;  // none
    int count = 0;
    int64_t bytes = 0;
    bool is_first = true;  // of its element type
  };
  static constexpr int kMaxDTypes = 64;  // numbers of the format
  static int Index(DType dtype) { return static_cast<int>(dtype) % kMaxDTypes; }
  bool IsFull(const Open& open) const;

  const BucketPolicy policy_;
  int num_buckets_ = 0;
  Open open_[kMaxDTypes];
  DType last_dtype_ = DType::kFloat32;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_BUCKET_POLICY_H_
