#include "transpiler/passes/paddle/paddle_single_process_fuse.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/paddle/paddle_gradients.h"
#include "transpiler/passes/paddle/paddle_ops.h"
#include "transpiler/passes/support/fused_buffer.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/properties.h"

namespace weft {
namespace {

constexpr char kBuffer[] = "fused_output";
constexpr char kReduced[] = "reduced";

void SumThroughBuffer(OpId after, const std::vector<std::string>& grads, Rewriter* rewriter) {
  rewriter->AddVar(0, PaddleTensorVar(kBuffer, TensorOf(pb::VarType::FP32, {1})));
  rewriter->InsertAfter(after, PaddleCoalesce(grads, pb::VarType::FP32, kBuffer, kRoleForward));
  rewriter->InsertAfter(after, PaddleSyncCalc(kBuffer, kRoleBackward));
  rewriter->InsertAfter(after, PaddleAllReduceSum(kBuffer, /*ring=*/0, kRoleBackward));
  rewriter->InsertAfter(after, PaddleSyncComm(kBuffer, /*ring=*/0, kRoleBackward));
}

void SumTogether(OpId after, const std::vector<std::string>& grads, Rewriter* rewriter) {
  rewriter->InsertAfter(after, PaddleSyncCalc(grads.front(), kRoleBackward));
  rewriter->InsertAfter(
      after, BuildOp(InPlaceOp("c_allreduce_xsum", grads, {{"ring_id", 0}}, kRoleBackward),
                     Dialect::kPaddle));
  rewriter->InsertAfter(after, PaddleSyncComm(grads.front(), /*ring=*/0, kRoleBackward));
}

}  // namespace

void PaddleSingleProcessFuse::Options::Bind(OptionBinder& bind) {
  bind.Choice("by", &by, "how gradients are summed: in a fused buffer, or by c_allreduce_xsum",
              {{"buffer", By::kBuffer}, {"xsum", By::kXsum}});
}

Contract PaddleSingleProcessFuse::contract() const {
  return Contract().ProvidesOnce(kGradientsReduced);
}

Claims PaddleSingleProcessFuse::claims(const PassContext& context) const {
  return Claims::Of(Claims::Gradients::kAveraged);
}

absl::StatusOr<bool> PaddleSingleProcessFuse::Run(const PassContext& context,
                                                  ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const std::vector<PaddleGradient> gradients,
                        WalkGradients(program, context));
  OpId last;  // op that completes a replicated gradient
  std::vector<std::string> grads;
  for (const PaddleGradient& gradient : gradients) {
    if (gradient.distributed) continue;
    if (!last.valid()) last = gradient.op;
    grads.push_back(gradient.grad);
    if (context.sink.remarks == nullptr) continue;
    context.sink.Explain(kName, gradient.grad, kReduced,
                         absl::StrCat("gradient of replicated parameter ", gradient.param,
                                      ", together with all others"),
                         {{"ring", "0"}});
  }
  ExplainSkipped(kName, kReduced, gradients, /*why=*/"", context);
  if (grads.empty()) return false;
  WEFT_RETURN_IF_ERROR(
      WarnAboutReduction(kName, program, PaddleExchange::kAfterLastGradient, context));
  Rewriter rewriter(programs.main);
  if (options_.by == By::kXsum) {
    SumTogether(last, grads, &rewriter);
  } else {
    if (program.block(0).FindVar(kBuffer).valid()) {
      return absl::FailedPreconditionError(
          absl::StrCat("variable ", kBuffer, " already exists; Paddle has no other name for it"));
    }
    SumThroughBuffer(last, grads, &rewriter);
  }
  return CommitEdits(&rewriter);
}

}  // namespace weft
