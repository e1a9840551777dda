// The ops of LocalSGD.
#ifndef WEFT_TRANSPILER_PASSES_AVERAGING_WRITER_H_
#define WEFT_TRANSPILER_PASSES_AVERAGING_WRITER_H_

#include <string>

#include "absl/types/optional.h"
#include "proto/rewriter.h"
#include "transpiler/passes/averaging_plan.h"
#include "transpiler/passes/new_variables.h"
#include "transpiler/pipeline/claims.h"

namespace weft {

// Appends to the main program a counter that every step increments, and the condition
//
//   counter % period == 0 and counter >= first_step
//
// whose name it returns. Appends to the startup program an op that sets the counter to 0.
std::string WriteAveragingCondition(const AveragingSchedule& schedule, UniqueNames* names,
                                    Rewriter* main, Rewriter* startup);

// Appends the ops of the plan to `block`. One collective averages all tensors of an element type,
// through a fused buffer if there are several. Element types take rings 0 .. nrings-1 in turn and
// are in flight together. If the number of ranks is known, the collective sums and a scale op
// divides. O(tensors).
void WriteAveraging(const AveragingPlan& plan, int nrings, absl::optional<int> nranks, int block,
                    UniqueNames* names, Rewriter* rewriter);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_AVERAGING_WRITER_H_
