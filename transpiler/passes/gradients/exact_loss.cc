#include "transpiler/passes/gradients/exact_loss.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/values/batch_edits.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/analysis/values/sum_losses.h"
#include "ops/schema/tensor_type.h"
#include "transpiler/passes/gradients/batch_edit_writer.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"

namespace weft {

void ExactLoss::Options::Bind(OptionBinder& bind) {
  bind.Switch("exact_loss", &exact_loss,
              "reduce the sums and counts that losses other than batch means use, to get the loss "
              "of one device on the global batch");
  bind.Switch("gather_negatives", &gather_negatives,
              "gather from all ranks the samples that a loss compares with each other, as in "
              "contrastive losses");
}

Contract ExactLoss::contract() const {
  if (!options_.exact_loss && !options_.gather_negatives) return {};
  return Contract().ConflictsWith(kGradientsReduced);
}

void ExactLoss::Foresee(const ConstProgramPair& programs, const PassContext& context,
                        Forecast* forecast) const {
  if (context.target.dialect == Dialect::kPaddle) return;
  BatchFlowOptions options = FlowOptionsOf(context);
  if (options_.gather_negatives) options.edits = FindSampleEdits(*programs.main, options);
  if (options_.exact_loss && options.edits.empty()) {
    options.edits = FindLossEdits(*programs.main, options);
  }
  if (options.edits.empty()) return;
  options.extent = BatchFlowOptions::Extent::kToLosses;
  forecast->sum_losses = FindSumLosses(*programs.main, BatchFlow::Of(*programs.main, options));
}

namespace {

// Later variables are declared with the batch of one rank. So the batch must be open (-1).
absl::Status CheckBatchIsOpen(const Program& main, const BatchEdits& edits) {
  for (const auto& [id, inputs] : edits.inputs) {
    const Op op = main.op(id);
    for (const auto& [i, edit] : inputs) {
      const Var var = main.var(main.block(0).FindVar(op.input_args()[i]));
      const absl::optional<TensorType> type = DeclaredType(var);
      if (edit != BatchInputEdit::kGather || !type.has_value() || type->dims.empty()) continue;
      if (type->dims[0] == -1) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          op.DebugName(), ": expected variable ", var.name(),
          ", whose samples are gathered, with an open batch (-1), found ", type->dims[0]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> ExactLoss::Run(const PassContext& context, ProgramPair& programs) const {
  if (!options_.exact_loss && !options_.gather_negatives) return false;
  WEFT_RETURN_IF_ERROR(RefuseGroups(context));
  bool gathers = false, reduces = false;
  if (options_.gather_negatives) {
    if (!context.target.cluster.nranks().has_value()) {
      return absl::FailedPreconditionError(
          "gather_negatives: expected a known number of ranks, found none; set option:nranks");
    }
    const BatchEdits edits = FindSampleEdits(*programs.main, FlowOptionsOf(context));
    if (edits.empty()) {
      context.sink.Note(
          "option:gather_negatives gathers nothing: no loss compares samples along their first "
          "dimension in the root block, where gathering them would make it the reference value");
    }
    WEFT_RETURN_IF_ERROR(CheckBatchIsOpen(*programs.main, edits));
    WEFT_ASSIGN_OR_RETURN(gathers, WriteBatchEdits(edits, kName, "the loss compares samples",
                                                   context, programs.main));
  }
  if (options_.exact_loss) {
    WEFT_ASSIGN_OR_RETURN(
        reduces, WriteBatchEdits(FindLossEdits(*programs.main, FlowOptionsOf(context)), kName,
                                 "the loss is no linear function of it", context, programs.main));
  }
  return gathers || reduces;
}

}  // namespace weft
