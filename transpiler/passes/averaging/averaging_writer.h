// The ops that average parameters.
#ifndef WEFT_TRANSPILER_PASSES_AVERAGING_AVERAGING_WRITER_H_
#define WEFT_TRANSPILER_PASSES_AVERAGING_AVERAGING_WRITER_H_

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "transpiler/passes/averaging/averaging_plan.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/passes/support/step_condition.h"
#include "transpiler/pipeline/claims.h"
#include "transpiler/pipeline/param_attrs.h"

namespace weft {

// Appends to the main program a counter that every step increments, and the condition
//
//   (counter % period == 0 or counter < begin_step) and counter >= first_step
//
// whose name it returns. Appends to the startup program an op that sets the counter to 0.
std::string WriteAveragingCondition(const AveragingSchedule& schedule, ProgramEdits* edits);

// For a schedule with groups: the same of averages over them, and over all ranks.
struct GroupConditions {
  std::string groups, all;
};
GroupConditions WriteGroupConditions(const AveragingSchedule& schedule, ProgramEdits* edits);

// The variables of the root block that the ops of WriteAveraging read and write, and those that
// they read only.
BranchVariables VariablesOf(const AveragingPlan& plan);
// And those of LaunchGradients.
BranchVariables VariablesOfGradients(const AveragingPlan& plan);

// Adds the states of the outer optimizer: the startup program copies parameters, and sets
// velocities to 0.
void AddOuterStates(const AveragingPlan& plan, ProgramEdits* edits);

// Casts a parameter from its master weight.
pb::OpDesc CastOp(const AveragingPlan::Cast& cast);

struct AveragingPlace {
  int block = 0;
  // Element types take rings 0 .. nrings-1 in turn, from first_ring on.
  int nrings = 1;
  int first_ring = 0;
  std::string buffer = "local_sgd_buffer";  // names fused buffers
  OuterOptimizer outer = {};                // moves the tensors of AveragingPlan::outer
  double mix = 0;                           // AveragingSchedule::mix
  // Ranks average over their groups, on rings nrings + RankGroup::index. Empty: over all ranks.
  std::vector<RankGroup> groups = {};
};

// Appends the ops of the plan to the block. One collective averages all tensors of an element type,
// through a fused buffer if there are several. Element types are in flight together. If the number
// of ranks is known, the collective sums and a scale op divides. Where an outer optimizer moves the
// tensors, their outer gradients travel, in their place; with a delay, those that LaunchGradients
// has sent. O(tensors).
void WriteAveraging(const AveragingPlan& plan, const AveragingPlace& place,
                    absl::optional<int> nranks, ProgramEdits* edits);

// With a delay, in a block that runs so many steps before: begins to average the outer gradients,
// which are on their way when the step ends. A step that runs both blocks is not allowed.
// O(tensors).
void LaunchGradients(const AveragingPlan& plan, const AveragingPlace& place,
                     absl::optional<int> nranks, ProgramEdits* edits);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_AVERAGING_AVERAGING_WRITER_H_
