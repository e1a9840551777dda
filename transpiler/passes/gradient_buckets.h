// The gradients of a program in buckets: one collective reduces each.
#ifndef WEFT_TRANSPILER_PASSES_GRADIENT_BUCKETS_H_
#define WEFT_TRANSPILER_PASSES_GRADIENT_BUCKETS_H_

#include <string>
#include <vector>

#include "ops/analysis/gradients.h"
#include "proto/program.h"
#include "transpiler/passes/bucket_policy.h"
#include "transpiler/passes/fused_buffer.h"

namespace weft {

struct GradientBucket {
  std::vector<int> gradients;  // into GradientAnalysis::gradients, in the order of completion
  int block = 0;               // of all of them
  OpId begins_at;              // the first op that writes one of several, in the root block
  std::string why_alone;       // why a gradient cannot share a bucket
};

// Every gradient is in one bucket. The gradients of a bucket have the same element type and block;
// all are complete before one is used. If there are several, each has a known shape, and its
// storage can move into the buffer: its first write does not read the old value, and its variable
// holds no other gradient in the same step. Buckets are in the order of completion, those of the
// root block first. O(arguments).
std::vector<GradientBucket> FillBuckets(const Program& program, const GradientAnalysis& analysis,
                                        const BucketPolicy& policy);

// The gradients of a bucket as the slices of a buffer.
FusedTensors TensorsOf(const Program& program, const GradientAnalysis& analysis,
                       const GradientBucket& bucket);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENT_BUCKETS_H_
