#include "transpiler/passes/exact_loss.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/batch_edits.h"
#include "ops/analysis/batch_flow.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/facts.h"
#include "transpiler/passes/new_variables.h"
#include "transpiler/passes/op_builder.h"

namespace weft {
namespace {

BatchFlowOptions FlowOptions(const PassContext& context) {
  BatchFlowOptions options;
  options.feeds = context.feeds;
  options.nranks = context.cluster.nranks();
  return options;
}

// Writes the edits into a main program.
class EditWriter {
 public:
  EditWriter(PassContext& context, Program* main)
      : context_(context), main_(*main), rewriter_(main), names_(*main) {}

  absl::StatusOr<bool> Write(const BatchEdits& edits) {
    for (OpId id : main_.block(0).ops()) {
      const Op op = main_.op(id);
      if (!IsBackward(op)) WriteReductions(op, edits);
      if (edits.divisions.contains(id)) WEFT_RETURN_IF_ERROR(WriteDivision(op));
    }
    return CommitEdits(&rewriter_);
  }

 private:
  void WriteReductions(const Op& op, const BatchEdits& edits) {
    for (Symbol name : op.output_args()) {
      const auto found = edits.reductions.find(main_.block(0).FindVar(name));
      if (found == edits.reductions.end()) continue;
      const std::string variable(main_.name(name));
      const bool sums = found->second == Reduction::kSum;
      rewriter_.InsertAfter(
          op.id(), BuildOp(InPlaceOp(sums ? "c_allreduce_sum" : "c_allreduce_avg", {variable},
                                     {{"ring_id", 0}, {"use_calc_stream", true}}, kRoleForward),
                           context_.dialect));
      context_.Explain(ExactLoss::kName, variable, sums ? "summed" : "averaged",
                       "the loss is no linear function of it",
                       {{"ring", "0"}, {"after", op.DebugName()}});
    }
  }

  // n / d becomes n / (d / ranks), which is a mean over the batch if d is the sum of all ranks.
  absl::Status WriteDivision(const Op& op) {
    const int nranks = *context_.cluster.nranks();
    const std::string divisor(main_.name(op.Input("Y")[0]));
    const std::string mean = names_.Of(absl::StrCat(divisor, "@MEAN"));
    pb::VarDesc var = main_.var(main_.block(0).FindVar(divisor)).ToProto();
    var.set_name(mean);
    rewriter_.AddVar(0, var);
    rewriter_.InsertBefore(op.id(), BuildOp({"scale",
                                             {{"X", {divisor}}},
                                             {{"Out", {mean}}},
                                             {{"scale", static_cast<float>(1.0 / nranks)}},
                                             kRoleForward,
                                             nranks},
                                            context_.dialect));
    ReplaceDivisor(op, mean);
    WEFT_ASSIGN_OR_RETURN(const absl::optional<OpId> gradient, GradientOf(op));
    if (gradient.has_value()) ReplaceDivisor(main_.op(*gradient), mean);
    context_.Explain(ExactLoss::kName, divisor, "divided",
                     absl::StrCat("so that the quotient is a mean over ", nranks, " ranks"),
                     {{"before", op.DebugName()}});
    return absl::OkStatus();
  }

  void ReplaceDivisor(const Op& op, const std::string& with) {
    pb::OpDesc desc = op.ToProto();
    for (pb::OpDesc::Var& slot : *desc.mutable_inputs()) {
      if (slot.parameter() == "Y") slot.set_arguments(0, with);
    }
    rewriter_.Replace(op.id(), desc);
  }

  // The gradient op of a division; none if nothing reads the gradient of its output.
  absl::StatusOr<absl::optional<OpId>> GradientOf(const Op& op) const {
    const std::string type = absl::StrCat(op.type(), "_grad");
    const std::string gradient = absl::StrCat(main_.name(op.Output("Out")[0]), kGradSuffix);
    bool is_read = false;
    for (OpId id : main_.block(0).ops()) {
      const Op other = main_.op(id);
      if (!IsBackward(other)) continue;
      is_read = is_read || absl::c_any_of(other.input_args(), [&](Symbol name) {
                  return main_.name(name) == gradient;
                });
      if (other.type() == type && other.Input("Y") == op.Input("Y") &&
          other.Input("X") == op.Input("X")) {
        return absl::make_optional(id);
      }
    }
    if (!is_read) return absl::optional<OpId>();
    return absl::FailedPreconditionError(
        absl::StrCat(op.DebugName(), ": expected its gradient op, ", type,
                     ", found none, although ", gradient, " is read"));
  }

  PassContext& context_;
  const Program& main_;
  Rewriter rewriter_;
  UniqueNames names_;
};

}  // namespace

void ExactLoss::Options::Bind(OptionBinder& bind) {
  bind.Switch("exact_loss", &exact_loss,
              "reduce what losses that are no batch means are computed from, where that makes them "
              "those of one device");
}

Contract ExactLoss::contract() const {
  if (!options_.exact_loss) return {};
  return Contract().ConflictsWith(kGradientsReduced);
}

void ExactLoss::Prepare(const ConstProgramPair& programs, PassContext* context) const {
  if (!options_.exact_loss || context->dialect == Dialect::kPaddle) return;
  BatchFlowOptions options = FlowOptions(*context);
  options.edits = FindBatchEdits(*programs.main, options);
  if (options.edits.empty()) return;
  options.only_losses = true;
  const BatchFlow flow = BatchFlow::Of(*programs.main, options);
  context->losses_are_sums = LossesAreSums(*programs.main, flow).value_or(false);
}

absl::StatusOr<bool> ExactLoss::Run(PassContext& context, ProgramPair& programs) const {
  if (!options_.exact_loss) return false;
  if (context.dialect == Dialect::kPaddle) {
    return absl::FailedPreconditionError("exact losses are available in the weft dialect only");
  }
  return EditWriter(context, programs.main)
      .Write(FindBatchEdits(*programs.main, FlowOptions(context)));
}

}  // namespace weft
