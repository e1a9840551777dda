#include "transpiler/passes/paddle/paddle_multi_thread_fuse.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/paddle/paddle_gradients.h"
#include "transpiler/passes/paddle/paddle_ops.h"
#include "transpiler/passes/support/fused_buffer.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/properties.h"

namespace weft {
namespace {

constexpr char kReduced[] = "reduced";

struct Segment {
  pb::VarType::Type dtype;
  std::vector<std::string> grads;
  std::string buffer;
};

// A change of element type starts a new segment.
absl::StatusOr<std::vector<Segment>> CutIntoSegments(const Program& program,
                                                     const std::vector<PaddleGradient>& gradients,
                                                     size_t max_gradients) {
  UniqueNames names(program);
  std::vector<Segment> segments;
  for (const PaddleGradient& gradient : gradients) {
    if (gradient.distributed) continue;
    WEFT_ASSIGN_OR_RETURN(const auto tensor, TensorOfVar(program.op(gradient.op), gradient.grad));
    if (segments.empty() || segments.back().grads.size() == max_gradients ||
        segments.back().dtype != tensor.data_type()) {
      segments.push_back(
          {tensor.data_type(), {}, names.Next(absl::StrCat("FusedOutput_", gradient.grad))});
    }
    segments.back().grads.push_back(gradient.grad);
  }
  return segments;
}

}  // namespace

void PaddleMultiThreadFuse::Options::Bind(OptionBinder& bind) {
  bind.Int("fuse_grad_size_in_num", &fuse_grad_size_in_num,
           "gradients in a fused buffer (paddle dialect)", /*min=*/1);
}

Contract PaddleMultiThreadFuse::contract() const {
  return Contract().ProvidesOnce(kGradientsReduced);
}

Claims PaddleMultiThreadFuse::claims(const PassContext& context) const {
  return Claims::Of(Claims::Gradients::kAveraged);
}

absl::StatusOr<bool> PaddleMultiThreadFuse::Run(const PassContext& context,
                                                ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const std::vector<PaddleGradient> gradients,
                        WalkGradients(program, context));
  WEFT_RETURN_IF_ERROR(RequireGradients(gradients));
  WEFT_RETURN_IF_ERROR(
      WarnAboutReduction(kName, program, PaddleExchange::kBeforeFirstOptimize, context));
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<Segment> segments,
      CutIntoSegments(program, gradients, static_cast<size_t>(options_.fuse_grad_size_in_num)));
  const OpId optimize = FirstOptimizeOp(program);
  if (segments.empty() || !optimize.valid()) {
    ExplainSkipped(kName, kReduced, gradients,
                   "no op of the root block has optimize role, before which Paddle reduces them",
                   context);
    return false;
  }
  Rewriter rewriter(programs.main);
  for (size_t i = segments.size(); i-- > 0;) {
    rewriter.InsertBefore(optimize, PaddleCoalesce(segments[i].grads, segments[i].dtype,
                                                   segments[i].buffer, kRoleBackward));
  }
  for (size_t i = segments.size(); i-- > 0;) {
    rewriter.InsertBefore(optimize, PaddleSyncCalc(segments[i].buffer, kRoleBackward));
    rewriter.InsertBefore(optimize,
                          PaddleAllReduceSum(segments[i].buffer, /*ring=*/0, kRoleBackward));
  }
  rewriter.InsertBefore(optimize,
                        PaddleSyncComm(segments.front().buffer, /*ring=*/0, kRoleBackward));
  for (const Segment& segment : segments) {
    rewriter.AddVar(0, PaddleTensorVar(segment.buffer, TensorOf(segment.dtype, {})));
    if (context.sink.remarks == nullptr) continue;
    for (const std::string& grad : segment.grads) {
      context.sink.Explain(kName, grad, kReduced, "gradient of a replicated parameter",
                           {{"ring", "0"}, {"buffer", segment.buffer}});
    }
  }
  ExplainSkipped(kName, kReduced, gradients, /*why=*/"", context);
  return CommitEdits(&rewriter);
}

}  // namespace weft
