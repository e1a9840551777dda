// What passes that reduce gradients over the ranks find out first.
#ifndef WEFT_TRANSPILER_PASSES_GRADIENT_REDUCTION_H_
#define WEFT_TRANSPILER_PASSES_GRADIENT_REDUCTION_H_

#include "absl/status/statusor.h"
#include "ops/analysis/gradients.h"
#include "proto/program.h"
#include "transpiler/passes/gradient_scale.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

struct GradientReduction {
  GradientAnalysis analysis;
  // Whether the reduction averages; else it sums.
  bool averages = false;
};

// The gradients of a main program that can be reduced, and whether their reduction averages.
// FailedPrecondition: no gradients; the first of ReductionBlockers; the errors of
// ReductionAverages. InvalidArgument: those of AnalyzeGradients. O(arguments).
absl::StatusOr<GradientReduction> AnalyzeReduction(const Program& program,
                                                   const PassContext& context, GradientScale scale);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENT_REDUCTION_H_
