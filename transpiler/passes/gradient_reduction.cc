#include "transpiler/passes/gradient_reduction.h"

#include "base/status_macros.h"
#include "transpiler/passes/reduction_blockers.h"

namespace weft {

absl::StatusOr<GradientReduction> AnalyzeReduction(const Program& program,
                                                   const PassContext& context,
                                                   GradientScale scale) {
  GradientReduction reduction;
  WEFT_ASSIGN_OR_RETURN(reduction.analysis, AnalyzeGradients(program, context.distributed_params));
  WEFT_RETURN_IF_ERROR(RequireGradients(reduction.analysis));
  for (const absl::Status& problem :
       ReductionBlockers(program, reduction.analysis, context.distributed_params)) {
    WEFT_RETURN_IF_ERROR(problem);
  }
  WEFT_ASSIGN_OR_RETURN(reduction.averages, ReductionAverages(scale, program, context.cluster));
  return reduction;
}

}  // namespace weft
