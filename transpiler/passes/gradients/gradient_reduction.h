// The gradients that a pass can reduce over the ranks, and what makes a reduction wrong.
#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_GRADIENT_REDUCTION_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_GRADIENT_REDUCTION_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/analysis/training/gradients.h"
#include "proto/program.h"
#include "transpiler/passes/gradients/gradient_scale.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

struct GradientReduction {
  GradientAnalysis analysis;
  bool averages = false;  // else it sums
};

// The gradients of a main program, and whether their reduction averages. FailedPrecondition: no
// gradients; the first of ReductionBlockers; the errors of ReductionAverages. InvalidArgument:
// those of AnalyzeGradients. O(arguments).
absl::StatusOr<GradientReduction> AnalyzeReduction(const Program& program,
                                                   const PassContext& context, GradientScale scale);

// Why a program has no gradients to reduce, and what to do about it. O(arguments).
std::string WhyNoGradients(const Program& program);

// What makes an all-reduce of the gradients in every step wrong. FailedPrecondition, naming op and
// variable, at most one of each kind:
//   - a compressed gradient
//   - a gradient that is no floating-point tensor
//   - a gradient that is accumulated over several steps, and whose sum is not known to be complete
//     at any op (GradientAnalysis::unclear)
//   - a gradient that is a slice of a fused buffer (coalesce_tensor)
//   - an optimizer that updates a replicated parameter whose gradient is not reduced
// O(arguments).
std::vector<absl::Status> ReductionBlockers(const Program& program,
                                            const GradientAnalysis& analysis,
                                            const std::set<std::string>& distributed_params);

// FailedPrecondition, naming op and variable, if an op compresses a gradient (dgc). It leaves
// zeros, and no op exchanges what it encodes. O(ops).
absl::Status RefuseCompressedGradients(const Program& program);

// Adds a remark of `pass` for every gradient: it stays local. The errors of FindGradientPairs.
// O(arguments).
absl::Status ExplainLocalGradients(absl::string_view pass, const Program& program,
                                   const PassContext& context);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_GRADIENT_REDUCTION_H_
