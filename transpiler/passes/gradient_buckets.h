// The gradients of a program in buckets: what one collective reduces.
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
  // The first op that writes one of them. Valid in the root block, where there are several.
  OpId begins_at;
  // Why a single gradient is not joined by others.
  std::string why_alone;
};

// Every gradient is in one bucket. Those of one bucket have one element type and stand in one
// block; each is complete before any of them is used, and has a known shape and storage that it can
// give up: its first write does not read what was there before, and its variable holds no other
// gradient in the same step. Buckets are in the order in which they are complete, those of the root
// block first. O(arguments).
std::vector<GradientBucket> FillBuckets(const Program& program, const GradientAnalysis& analysis,
                                        const BucketPolicy& policy);

// The gradients of a bucket as tensors that share a buffer.
FusedTensors TensorsOf(const Program& program, const GradientAnalysis& analysis,
                       const GradientBucket& bucket);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENT_BUCKETS_H_
