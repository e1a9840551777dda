// Gradients and a bucket policy as JSON, without a program.
#ifndef WEFT_TOOLS_FILES_BUCKET_FILE_H_
#define WEFT_TOOLS_FILES_BUCKET_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transpiler/buckets/bucket_planner.h"
#include "transpiler/buckets/bucket_policy.h"
#include "transpiler/buckets/collective_time.h"

namespace weft {

struct BucketFile {
  BucketPolicy policy;
  // In the order in which the policy sees them, with their numbers in the file and, for `optimal`,
  // when they are ready, in seconds.
  std::vector<BucketGradient> gradients;
  std::vector<int> numbers;
  std::vector<double> ready;
};

// {"policy": NAME, "params": {...}, "grads": [{"dtype": "float32", "elements": 64, "bytes": 256,
// "repeat": 2, "ready_us": 10}, ...]}; `repeat` gradients in a row are alike; `bytes`
// or `elements` may be absent. NAME and params:
//
//   mindspore_index   split_indices, fusion_type; comm_fusion: one per gradient
//   mindspore_param   the same; split_indices may be empty
//   mindspore_size    threshold
//   singa_threshold   threshold, buffer_elements
//   megengine_py      threshold_bytes; order: the numbers of gradients as they are ready; one
//                     that it does not have is never ready
//   megengine_cc      max_size_mib, ignore_first
//   paddle_count      count
//   ddp               first_bytes, cap_bytes; sparse: the numbers of those that travel alone
//
// or a policy of Weft as text ("bytes{max_bytes=100}"), without params. InvalidArgument with the
// key, what was expected and what was found.
absl::StatusOr<BucketFile> ParseBucketFile(absl::string_view json);

// {"policy", "groups": [{"members", "fused"}], "warnings"}; for `optimal` also "finish_us",
// "lower_bound_us", their difference "gap_us", and "found_by". Errors: those of PlanBuckets and
// PlanOptimalBuckets.
absl::StatusOr<std::string> PlanBucketFile(const BucketFile& file, const CollectiveTime& time,
                                           int nrings);

}  // namespace weft

#endif  // WEFT_TOOLS_FILES_BUCKET_FILE_H_
