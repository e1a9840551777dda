// The gradients of a training program, where each is complete, and its first use.
#ifndef WEFT_OPS_ANALYSIS_TRAINING_GRADIENTS_H_
#define WEFT_OPS_ANALYSIS_TRAINING_GRADIENTS_H_

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
  OpId op;  // the first op that names it
};

// One value of a paired gradient: from the op that completes it to the first op that uses it.
// A variable that is written again after its use (several losses) has several.
struct Gradient {
  Symbol param;
  Symbol grad;
  // The last backward op that writes or reads the value before its first use.
  OpId completed_by;
  // The first later op that accesses it and is not part of backward: clipping, regularization, an
  // optimizer, a fetch. Invalid: none in this block.
  OpId first_use;
  // Not 0: a persistable gradient that is accumulated over several steps (gradient merge) and used
  // up in this sub-block, which a conditional op of the root block runs. The sum is complete at the
  // start of the block; first_use, of any role, is in the block.
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
  // Accumulated over several steps, without a use that shows where the sum is complete.
  std::vector<SkippedGradient> unclear;
};

// The pairs of all backward ops of the root block, each once, without those of empty arguments.
// InvalidArgument, naming the op: an odd op_role_var, an undeclared name, a gradient that is paired
// with two parameters. O(arguments).
absl::StatusOr<std::vector<GradientPair>> FindGradientPairs(const Program& program);

// InvalidArgument if a name is not a variable of the root block.
absl::Status CheckDistributedParams(const Program& program,
                                    const std::set<std::string>& distributed_params);

// Follows the data of every pair through the root block; an op accesses what its sub-blocks access.
// Skips pairs whose parameter is in `distributed_params`, whose gradient no op writes, or whose
// gradient only backward ops use: it is a part of another one (a summand of a shared weight).
// Only one conditional op may use an accumulated gradient, and its block must overwrite it at the
// end, so that a sum over the ranks is not accumulated further.
// InvalidArgument: the errors of FindGradientPairs and CheckDistributedParams; a backward op with a
// pair inside a sub-block. O(arguments).
absl::StatusOr<GradientAnalysis> AnalyzeGradients(const Program& program,
                                                  const std::set<std::string>& distributed_params);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TRAINING_GRADIENTS_H_
