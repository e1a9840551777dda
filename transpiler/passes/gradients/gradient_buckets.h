// The gradients of a program in buckets: one collective reduces each.
#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_GRADIENT_BUCKETS_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_GRADIENT_BUCKETS_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "ops/analysis/training/gradients.h"
#include "proto/program.h"
#include "transpiler/buckets/bucket_policy.h"
#include "transpiler/buckets/collective_time.h"
#include "transpiler/buckets/step_times.h"
#include "transpiler/passes/support/fused_buffer.h"
#include "transpiler/pipeline/param_attrs.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

struct GradientBucket {
  std::vector<int> gradients;  // into GradientAnalysis::gradients, in the order of completion
  int block = 0;               // of all of them
  OpId begins_at;              // the first op that writes one of several, in the root block
  std::string why_alone;       // why a gradient cannot share a bucket
  std::string why_ended;       // why no further gradient joined
  absl::optional<RankGroup> group = absl::nullopt;  // over which it is reduced; none: all ranks
  // MindSpore: attribute `fusion` of the collectives of the gradients, and `index` of each; empty:
  // it has none.
  absl::optional<int> fusion_id = absl::nullopt;
  std::vector<int> indices = {};
};

// What policies go by beside the program. All: groups of ranks, and where parameters are updated;
// `optimal`: times and rings; `mindspore`: comm_fusion.
struct BucketInputs {
  // When gradients of the root block are complete, in seconds since the step began, by name: of a
  // variable that holds several gradients in turn, one after the other.
  ReadyTimes ready = {};
  CollectiveTime collective = {};
  int nrings = 1;
  ParamAttrsByName param_attrs = {};
  std::set<std::string> updated_on_host = {};
  // By parameter: gradients of different numbers share no bucket. Of others: 0.
  std::map<std::string, int> classes = {};
  // Classes that the policy does not divide.
  std::set<int> undivided = {};
};

struct FilledBuckets {
  std::vector<GradientBucket> buckets;
  std::vector<std::string> warnings;  // of the policy
};

// Whether a pass that fills buckets has the trait, which is about times.
bool ReadsTimes(const BucketPolicy& policy, PassTrait trait);

// Every gradient is in one bucket. The gradients of a bucket have the same element type, block and
// group of ranks; all are complete before one is used, and all of their parameters are updated on
// one device, to which the bucket can go at once. Policies fill the buckets of each group and
// device as if there were no other gradients. If there are several, each has a known shape, and its
// storage can move into the buffer: its first write does not read the old value, and its variable
// holds no other gradient in the same step. Where the policy wants gradients to share a bucket
// although one is used before another is complete, the bucket is divided. Buckets are in the order
// of completion, those of the root block first. Errors: those of PlanBuckets. O(arguments).
absl::StatusOr<FilledBuckets> FillBuckets(const Program& program, const GradientAnalysis& analysis,
                                          const BucketPolicy& policy,
                                          const BucketInputs& inputs = {});

// BucketInputs::ready, from the times of the ops of the root block, by position.
ReadyTimes FindReadyTimes(const Program& program, const GradientAnalysis& analysis,
                          const std::vector<double>& op_seconds);

// By gradient of the analysis, which may be of the program after other passes: the times under its
// name, in turn; none where there are none, and for those of other blocks.
std::vector<absl::optional<double>> ReadyOfGradients(const Program& program,
                                                     const GradientAnalysis& analysis,
                                                     const ReadyTimes& ready);

// The gradients of a bucket as the slices of a buffer.
FusedTensors TensorsOf(const Program& program, const GradientAnalysis& analysis,
                       const GradientBucket& bucket);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_GRADIENT_BUCKETS_H_
