#include "transpiler/passes/scale_loss_grad.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/pipeline/facts.h"

namespace weft {
namespace {

// Backward carries the factor from the losses' gradients to everything computed from them.
absl::Status CheckAllGradientsAreScaled(const Program& program, const PassContext& context) {
  WEFT_ASSIGN_OR_RETURN(const GradientAnalysis analysis,
                        AnalyzeGradients(program, context.distributed_params));
  std::vector<bool> scaled(program.symbols().size(), false);
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (!IsBackward(op)) continue;
    bool carries = IsLossGrad(op);
    for (Symbol symbol : op.input_args()) carries |= scaled[symbol.value()];
    for (Symbol symbol : op.output_args()) scaled[symbol.value()] = carries;
  }
  for (const Gradient& gradient : analysis.gradients) {
    if (scaled[gradient.grad.value()]) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "gradient ", program.name(gradient.grad), ", completed by ",
        program.op(gradient.completed_by).DebugName(),
        ", does not come from a loss gradient that could be scaled: no op before it has role "
        "backward|loss (0x101); use scale avg, which needs no such op"));
  }
  return absl::OkStatus();
}

}  // namespace

void ScaleLossGrad::Options::Bind(OptionBinder& bind) { BindGradientScale(bind, &scale); }

const Contract& ScaleLossGrad::contract() const {
  static const auto* contract =
      new Contract{{kLossGradientScaled}, {}, {kGradientsReduced, kLossGradientScaled}};
  return *contract;
}

absl::StatusOr<bool> ScaleLossGrad::Run(PassContext& context, ProgramPair& programs) const {
  WEFT_ASSIGN_OR_RETURN(const GradientScale scale, Resolve(options_.scale, context.participants));
  if (scale != GradientScale::kLossGrad) return false;
  const Program& program = *programs.main;
  for (const absl::Status& problem :
       {RefuseScaledLossGradient(program), CheckAllGradientsAreScaled(program, context)}) {
    WEFT_RETURN_IF_ERROR(context.RefuseOrWarn(kName, problem));
  }
  // Paddle divides by the number of trainers, whatever devices each drives.
  const bool paddle = context.dialect == Dialect::kPaddle;
  const int nranks = paddle ? *context.participants.trainers() : *context.participants.nranks();
  Rewriter rewriter(programs.main);
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (!IsLossGrad(op) || op.output_args().empty()) continue;
    const std::string grad(program.name(op.output_args()[0]));
    rewriter.InsertAfter(id, BuildOp({"scale",
                                      {{"X", {grad}}},
                                      {{"Out", {grad}}},
                                      {{"scale", static_cast<float>(1.0 / nranks)}},
                                      kRoleBackward,
                                      nranks},
                                     context.dialect));
    if (context.notes != nullptr) {
      context.notes->push_back(
          {std::string(kName),
           grad,
           "scaled",
           absl::StrCat("so that the sum over ", nranks, paddle ? " trainers" : " ranks",
                        " is the gradient of the mean loss"),
           {{"by", absl::StrCat("1/", nranks)}, {"after", op.DebugName()}}});
    }
  }
  if (rewriter.empty()) return false;
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return true;
}

}  // namespace weft
