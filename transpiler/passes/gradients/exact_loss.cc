#include "transpiler/passes/gradients/exact_loss.h"

#include "base/status_macros.h"
#include "ops/analysis/values/batch_edits.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/analysis/values/sum_losses.h"
#include "transpiler/passes/gradients/batch_edit_writer.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"

namespace weft {

void ExactLoss::Options::Bind(OptionBinder& bind) {
  bind.Switch("exact_loss", &exact_loss,
              "reduce the sums and counts that non-mean losses use, to match the reference loss");
}

Contract ExactLoss::contract() const {
  if (!options_.exact_loss) return {};
  return Contract().ConflictsWith(kGradientsReduced);
}

void ExactLoss::Foresee(const ConstProgramPair& programs, const PassContext& context,
                        Forecast* forecast) const {
  if (!options_.exact_loss || context.target.dialect == Dialect::kPaddle) return;
  BatchFlowOptions options = FlowOptionsOf(context);
  options.edits = FindLossEdits(*programs.main, options);
  if (options.edits.empty()) return;
  options.extent = BatchFlowOptions::Extent::kToLosses;
  forecast->sum_losses = FindSumLosses(*programs.main, BatchFlow::Of(*programs.main, options));
}

absl::StatusOr<bool> ExactLoss::Run(const PassContext& context, ProgramPair& programs) const {
  if (!options_.exact_loss) return false;
  WEFT_RETURN_IF_ERROR(RefuseGroups(context));
  return WriteBatchEdits(FindLossEdits(*programs.main, FlowOptionsOf(context)), kName,
                         "the loss is no linear function of it", context, programs.main);
}

}  // namespace weft
