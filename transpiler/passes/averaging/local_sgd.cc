#include "transpiler/passes/averaging/local_sgd.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transpiler/passes/averaging/averaging_plan.h"
#include "transpiler/passes/averaging/averaging_writer.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"
#include "transpiler/passes/support/step_condition.h"

namespace weft {
namespace {

void Explain(const AveragingPlan& plan, const LocalSgd::Options& options,
             const PassContext& context) {
  if (context.sink.remarks == nullptr) return;
  const std::string every =
      options.schedule.IsEveryStep() ? "every step" : ToString(options.schedule);
  for (size_t i = 0; i < plan.averaged.size(); ++i) {
    for (const std::string& name : plan.averaged[i].names) {
      context.sink.Explain(LocalSgd::kName, name, "averaged", "ranks train separately in between",
                           {{"when", every}, {"ring", absl::StrCat(i % options.nrings)}});
    }
  }
  for (const AveragingPlan::Cast& cast : plan.casts) {
    context.sink.Explain(LocalSgd::kName, cast.param, "cast", "its master weight is averaged",
                         {{"from", cast.master}});
  }
  for (const AveragingPlan::Reset& reset : plan.resets) {
    context.sink.Explain(LocalSgd::kName, reset.state, "reset",
                         "as the startup program initializes it");
  }
}

}  // namespace

void LocalSgd::Options::Bind(OptionBinder& bind) {
  bind.Int("k_steps", &schedule.period, "averaging period, in steps", /*min=*/1);
  bind.Int("begin_step", &schedule.begin_step,
           "before this step, every step averages; steps count from 1", /*min=*/1);
  bind.Int("first_average", &schedule.first_step, "before this step, no step averages", /*min=*/1);
  BindRings(bind, &nrings);
  bind.Bool("statistics", &statistics, "reduce running statistics over the ranks too");
  bind.Choice("state", &state, "what happens to the state of optimizers",
              {{"local", OptimizerState::kLocal},
               {"average", OptimizerState::kAverage},
               {"reset", OptimizerState::kReset}});
}

Contract LocalSgd::contract() const {
  // Nothing sums the divided gradients.
  return Contract()
      .ProvidesOnce(kParametersAveraged)
      .ConflictsWith(kGradientsReduced)
      .ConflictsWith(kLossGradientScaled);
}

Claims LocalSgd::claims(const PassContext& context) const { return Claims::Of(options_.schedule); }

absl::StatusOr<bool> LocalSgd::Run(const PassContext& context, ProgramPair& programs) const {
  const Program& main = *programs.main;
  WEFT_RETURN_IF_ERROR(RefuseCompressedGradients(main));
  WEFT_ASSIGN_OR_RETURN(const AveragingPlan plan,
                        PlanAveraging(programs, context, {options_.state, options_.statistics}));
  const bool is_every_step = options_.schedule.IsEveryStep();
  if (!is_every_step && programs.startup == nullptr) {
    return absl::FailedPreconditionError(
        "counting steps needs the startup program, which sets the counter to 0; give it, or use "
        "k_steps 1");
  }
  ProgramEdits edits(programs);
  AveragingPlace place;
  place.nrings = options_.nrings;
  if (!is_every_step) {
    const std::string condition = WriteAveragingCondition(options_.schedule, &edits);
    place.block =
        WriteBranch(condition, VariablesOf(plan), "local_sgd_scope", /*before=*/OpId(), &edits);
  }
  WriteAveraging(plan, place, context.target.cluster.nranks(), &edits);
  Explain(plan, options_, context);
  WEFT_RETURN_IF_ERROR(ExplainLocalGradients(kName, main, context));
  return edits.Commit();
}

}  // namespace weft
