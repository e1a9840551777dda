// Policies that say which gradients share a collective, as data.
#ifndef WEFT_TRANSPILER_BUCKETS_BUCKET_POLICY_H_
#define WEFT_TRANSPILER_BUCKETS_BUCKET_POLICY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace weft {

// What PlanBuckets (transpiler/buckets/bucket_planner.h) follows. Gradients are offered one after
// the other and join the open bucket of their kind. Parse makes these policies:
//
//   none                                 one gradient per bucket
//   bytes{first_bytes,max_bytes}         full at max_bytes, the first of an element type at
//                                        first_bytes, so that communication starts early: the
//                                        buckets of PyTorch's DistributedDataParallel
//   count{count}                         full with `count` gradients; another element type starts
//                                        a new bucket
//   paddle_count{count}                  the same from the last gradient to the first: Paddle's
//                                        fuse_all_reduce
//   mindspore{split_indices,fusion_type} MindSpore's fusion by the comm_fusion of each parameter if
//                                        these differ, else by index (`split_indices`, positions
//                                        that end a bucket, inclusive), else all in one;
//                                        honour_comm_fusion: also if they are equal and not 1;
//                                        parallel_optimizer: by index first, if there are any
//   mindspore_size{threshold}            MindSpore's by size, in units of 262,144 bytes: a bucket
//                                        ends when it is above; 0: no fusion; negative: no limit
//   singa{threshold,buffer_elements}     SINGA: gradients above `threshold` elements travel alone;
//                                        a bucket ends when it is above
//   megengine{threshold_bytes}           MegEngine's DistributedOptimizer: the first 8 travel
//                                        alone, a bucket ends when it is above
//   megengine_pass{max_size_mib,ignore_first}  MegEngine's C++ pass: ends when it is full
//   optimal                              the least exposed communication, from measured or
//                                        estimated times (transpiler/buckets/optimal_buckets.h)
struct BucketPolicy {
  // What the limits count.
  enum class Measure { kGradients, kElements, kBytes };
  // A bucket per element type is open at a time, or another type ends the open bucket.
  enum class Types { kApart, kInTurn };

  std::string name = "none";
  Measure measure = Measure::kGradients;
  absl::optional<int64_t> limit = 1;         // none: a bucket is never full
  absl::optional<int64_t> first_limit = {};  // of the first bucket of an element type
  bool ends_above = false;                   // full above the limit, not at it
  absl::optional<int64_t> alone_above = {};  // a gradient that measures more travels alone
  int ignore_first = 0;                      // so many travel alone
  Types types = Types::kApart;
  bool from_last = false;  // gradients are offered from the last to the first
  // A last bucket that measures 0 joins the one before it.
  bool joins_empty_tail = false;
  // Buckets that are open at the end come in the order of the names of their element types, not of
  // their first gradients.
  bool sorts_tail = false;
  // Buckets in the order of their first gradients, not in the order in which they end.
  bool by_first = true;
  // A bucket of one gradient is a fused buffer as well.
  bool fuses_single = false;
  // MindSpore: gradients share a bucket if their fusion ids are equal; id 0 travels alone.
  bool by_fusion_id = false;
  std::vector<int> split_indices = {};
  int fusion_type = 1;
  bool honour_comm_fusion = false;
  bool parallel_optimizer = false;  // MindSpore's enable_parallel_optimizer

  bool is_none() const { return name == "none"; }
  bool is_optimal() const { return name == "optimal"; }

  // "bytes{max_bytes=1048576}"; other parameters have their defaults. InvalidArgument for an
  // unknown policy (lists them), an unknown parameter, or a value out of range.
  static absl::StatusOr<BucketPolicy> Parse(absl::string_view text);
};

// The forms that Parse accepts, for messages.
inline constexpr char kBucketPolicies[] =
    "none, optimal, bytes{first_bytes=N,max_bytes=N}, count{count=N}, paddle_count{count=N}, "
    "mindspore{split_indices=\"I,J\",fusion_type=N,honour_comm_fusion=BOOL,"
    "parallel_optimizer=BOOL}, "
    "mindspore_size{threshold=N}, singa{threshold=N,buffer_elements=N}, "
    "megengine{threshold_bytes=N} or megengine_pass{max_size_mib=N,ignore_first=N}";

// Positions that end a bucket. InvalidArgument unless they are ascending, without duplicates and
// not negative, as MindSpore demands.
absl::Status CheckSplitIndices(const std::vector<int>& indices);

}  // namespace weft

#endif  // WEFT_TRANSPILER_BUCKETS_BUCKET_POLICY_H_
