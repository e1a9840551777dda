#include "transpiler/passes/paddle_gradients.h"

#include <algorithm>

#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "proto/op_role.h"
#include "transpiler/passes/paddle_ops.h"

namespace weft {

absl::StatusOr<std::vector<PaddleGradient>> WalkGradients(const Program& program,
                                                          const PassContext& context) {
  // For the checks of names.
  WEFT_RETURN_IF_ERROR(FindGradientPairs(program).status());
  WEFT_RETURN_IF_ERROR(CheckDistributedParams(program, context.distributed_params));
  std::vector<PaddleGradient> gradients;
  const absl::Span<const OpId> ops = program.block(0).ops();
  for (size_t position = ops.size(); position-- > 0;) {
    const Op op = program.op(ops[position]);
    if (!IsBackward(op) || !op.has_role_vars()) continue;
    WEFT_ASSIGN_OR_RETURN(const std::vector<ParamGrad> pairs, ParamGrads(op));
    for (const ParamGrad& pair : pairs) {
      if (pair.grad == kEmptyVarName) continue;
      gradients.push_back(
          {op.id(), pair.param, pair.grad, context.distributed_params.count(pair.param) > 0});
    }
  }
  return gradients;
}

int CountReplicated(absl::Span<const PaddleGradient> gradients) {
  return static_cast<int>(std::count_if(gradients.begin(), gradients.end(),
                                        [](const PaddleGradient& g) { return !g.distributed; }));
}

absl::Status RequireGradients(absl::Span<const PaddleGradient> gradients) {
  if (!gradients.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the program has no gradients: no op of backward role names pairs of parameter and gradient "
      "in op_role_var");
}

void InsertCollectives(const Program& program, absl::Span<const PaddleGradient> gradients,
                       int nrings,
                       absl::FunctionRef<pb::OpDesc(const PaddleGradient&, int ring)> collective,
                       Rewriter* rewriter) {
  int ring = -1;
  for (size_t begin = 0, end = 0; begin < gradients.size(); begin = end) {
    const OpId op = gradients[begin].op;
    std::vector<pb::OpDesc> of_op;
    for (; end < gradients.size() && gradients[end].op == op; ++end) {
      const PaddleGradient& gradient = gradients[end];
      if (gradient.distributed) continue;
      if (of_op.empty()) rewriter->InsertAfter(op, PaddleSyncCalc(gradient.grad, kRoleBackward));
      ring = (ring + 1) % nrings;
      of_op.push_back(collective(gradient, ring));
    }
    for (size_t i = of_op.size(); i-- > 0;) rewriter->InsertAfter(op, of_op[i]);
  }
  const OpId optimize = FirstOptimizeOp(program);
  if (gradients.empty() || !optimize.valid()) return;
  for (int r = 0; r < nrings; ++r) {
    rewriter->InsertBefore(optimize, PaddleSyncComm(gradients.back().grad, r, kRoleBackward));
  }
}

OpId FirstOptimizeOp(const Program& program) {
  for (OpId id : program.block(0).ops()) {
    if (IsOptimize(program.op(id))) return id;
  }
  return OpId();
}

}  // namespace weft
