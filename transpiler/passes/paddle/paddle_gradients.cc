#include "transpiler/passes/paddle/paddle_gradients.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "proto/op_role.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/paddle/paddle_ops.h"

namespace weft {
namespace {

Remark NotDone(absl::string_view pass, absl::string_view what, const PaddleGradient& gradient,
               absl::string_view why) {
  return {std::string(pass),
          gradient.grad,
          absl::StrCat("not ", what),
          gradient.distributed ? "its parameter is distributed" : std::string(why),
          {{"parameter", gradient.param}}};
}

}  // namespace

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

void InsertCollectives(
    const Program& program, absl::Span<const PaddleGradient> gradients, int nrings,
    absl::FunctionRef<const pb::OpDesc&(const PaddleGradient&, int ring)> collective,
    Rewriter* rewriter) {
  OpTemplate sync_calc(PaddleSyncCalc("", kRoleBackward));
  int ring = -1;
  for (size_t begin = 0, end = 0; begin < gradients.size(); begin = end) {
    const OpId op = gradients[begin].op;
    std::vector<std::pair<const PaddleGradient*, int>> of_op;  // and their rings
    for (; end < gradients.size() && gradients[end].op == op; ++end) {
      const PaddleGradient& gradient = gradients[end];
      if (gradient.distributed) continue;
      ring = (ring + 1) % nrings;
      of_op.emplace_back(&gradient, ring);
    }
    if (of_op.empty()) continue;
    const std::string& first = of_op.front().first->grad;
    rewriter->InsertAfter(op, sync_calc.In("X", {first}).Out("Out", {first}).op());
    for (size_t i = of_op.size(); i-- > 0;) {
      rewriter->InsertAfter(op, collective(*of_op[i].first, of_op[i].second));
    }
  }
  const OpId optimize = FirstOptimizeOp(program);
  if (gradients.empty() || !optimize.valid()) return;
  for (int r = 0; r < nrings; ++r) {
    rewriter->InsertBefore(optimize, PaddleSyncComm(gradients.back().grad, r, kRoleBackward));
  }
}

void ExplainCollectives(absl::string_view pass, absl::string_view what, const Program& program,
                        absl::Span<const PaddleGradient> gradients, int nrings,
                        PassContext& context) {
  if (context.remarks == nullptr) return;
  int next = 0;
  for (const PaddleGradient& gradient : gradients) {
    if (gradient.distributed) continue;
    context.remarks->push_back({std::string(pass),
                                gradient.grad,
                                std::string(what),
                                absl::StrCat("gradient of replicated parameter ", gradient.param),
                                {{"ring", absl::StrCat(next++ % nrings)},
                                 {"after", program.op(gradient.op).DebugName()}}});
  }
  ExplainDistributed(pass, what, gradients, context);
}

void ExplainDistributed(absl::string_view pass, absl::string_view what,
                        absl::Span<const PaddleGradient> gradients, PassContext& context) {
  if (context.remarks == nullptr) return;
  for (const PaddleGradient& gradient : gradients) {
    if (gradient.distributed) context.remarks->push_back(NotDone(pass, what, gradient, ""));
  }
}

void ExplainNothing(absl::string_view pass, absl::string_view what,
                    absl::Span<const PaddleGradient> gradients, absl::string_view why,
                    PassContext& context) {
  if (context.remarks == nullptr) return;
  for (const PaddleGradient& gradient : gradients) {
    context.remarks->push_back(NotDone(pass, what, gradient, why));
  }
}

OpId FirstOptimizeOp(const Program& program) {
  for (OpId id : program.block(0).ops()) {
    if (IsOptimize(program.op(id))) return id;
  }
  return OpId();
}

}  // namespace weft
