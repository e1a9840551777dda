// Which gradients a training program computes, where each is complete and where it is first used.
#ifndef WEFT_OPS_ANALYSIS_GRADIENTS_H_
#define WEFT_OPS_ANALYSIS_GRADIENTS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/op_role.h"
#include "proto/program.h"

namespace weft {

// A (parameter, gradient) pair that a backward op names in op_role_var.
struct GradientPair {
  Symbol param;
  Symbol grad;
  OpId op;  // that names it; the first one where several do
};

// One value of a paired gradient: from the op that completes it to the first op that uses it.
// A variable that is written again after its use (several losses) gives several.
struct Gradient {
  Symbol param;
  Symbol grad;
  // The last backward op that writes, or still reads, the value before it is used.
  OpId completed_by;
  // The first op after that which touches it and is not part of backward: clipping,
  // regularization, an optimizer, a fetch. Invalid: none in this block.
  OpId first_use;
  // Not 0: a persistable gradient, accumulated over several steps (gradient merge) and used up in
  // this sub-block, which a conditional op of the root block runs. The sum is complete when the
  // block begins, and first_use, of whatever role, is in the block.
  int block = 0;
};

// A paired gradient that needs no reduction, and why.
struct SkippedGradient {
  Symbol param;
  Symbol grad;
  std::string why;
};

struct GradientAnalysis {
  std::vector<GradientPair> pairs;  // distinct, in program order
  std::vector<Gradient> gradients;  // to be reduced, in the order of completion
  std::vector<SkippedGradient> skipped;
  // Accumulated over several steps, and not used in a way that tells where the sum is complete.
  std::vector<SkippedGradient> unclear;
};

// The pairs of all backward ops of the root block, each once, without those that stand for no
// gradient (kEmptyVarName). InvalidArgument, naming the op: an odd op_role_var, a name that is not
// declared, a gradient that is paired with two parameters. O(arguments).
absl::StatusOr<std::vector<GradientPair>> FindGradientPairs(const Program& program);

// InvalidArgument where a name is no variable of the root block.
absl::Status CheckDistributedParams(const Program& program,
                                    const std::set<std::string>& distributed_params);

// Follows the data of every pair through the root block; what ops of sub-blocks touch counts as
// touched by the op that holds the block. A pair is skipped where its parameter is one of
// `distributed_params`, where nothing writes the gradient, or where only backward ops use it: then
// it is a part of another gradient (the summands of a shared weight).
// An accumulated gradient must be used by one conditional op only, whose block overwrites it in the
// end: what was summed over the ranks is not accumulated further.
// InvalidArgument: the errors of FindGradientPairs and CheckDistributedParams; a backward op with a
// pair inside a sub-block. O(arguments).
absl::StatusOr<GradientAnalysis> AnalyzeGradients(const Program& program,
                                                  const std::set<std::string>& distributed_params);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_GRADIENTS_H_
