#include "transpiler/passes/paddle/paddle_warnings.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "proto/op_role.h"
#include "transpiler/passes/paddle/paddle_gradients.h"
#include "transpiler/passes/reduction_blockers.h"

namespace weft {
namespace {

// Whether op `a` of the root block comes after op `b` of it; none does where `b` is invalid.
bool IsAfter(const Program& program, OpId a, OpId b) {
  return b.valid() && program.op(a).block() == 0 &&
         program.op(a).position() > program.op(b).position();
}

// What is done once, before the first op of optimize role, is too early for a gradient that is
// complete only after it.
absl::Status CheckCompletion(const Program& program, const GradientAnalysis& analysis,
                             PaddleExchange exchange) {
  const OpId optimize = FirstOptimizeOp(program);
  const bool waits = exchange == PaddleExchange::kOneByOne;
  for (const Gradient& gradient : analysis.gradients) {
    if (!gradient.first_use.valid()) continue;
    if (!IsAfter(program, gradient.completed_by, optimize)) continue;
    if (gradient.block != 0) continue;  // a warning of its own
    return absl::FailedPreconditionError(
        absl::StrCat("gradient ", program.name(gradient.grad), " is ",
                     waits ? "not waited for: " : "reduced before it is complete: ",
                     program.op(gradient.completed_by).DebugName(), " completes it, and ",
                     program.op(gradient.first_use).DebugName(), " uses it, behind the only ",
                     waits ? "wait" : "reduction", ", before ", program.op(optimize).DebugName()));
  }
  return absl::OkStatus();
}

// What is done once, after the last gradient, is too late for one that is used before.
absl::Status CheckUse(const Program& program, const GradientAnalysis& analysis) {
  OpId last;
  std::vector<bool> is_replicated(program.symbols().size(), false);
  for (const Gradient& gradient : analysis.gradients) is_replicated[gradient.grad.value()] = true;
  for (const GradientPair& pair : analysis.pairs) {
    if (is_replicated[pair.grad.value()]) last = pair.op;
  }
  for (const Gradient& gradient : analysis.gradients) {
    if (gradient.block != 0 || !gradient.first_use.valid()) continue;
    if (IsAfter(program, gradient.first_use, last)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("gradient ", program.name(gradient.grad),
                     " is reduced after its use: ", program.op(gradient.first_use).DebugName(),
                     " uses it before the only reduction, behind ", program.op(last).DebugName()));
  }
  return absl::OkStatus();
}

absl::Status CheckAnyOptimizeOp(const Program& program, const GradientAnalysis& analysis) {
  if (analysis.gradients.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("gradient ", program.name(analysis.gradients.front().grad),
                   " is not reduced, nor is any other: no op of the root block has optimize role"));
}

absl::Status CheckPairs(const Program& program) {
  std::set<std::string> reduced;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (!IsBackward(op) || !op.has_role_vars()) continue;
    WEFT_ASSIGN_OR_RETURN(const std::vector<ParamGrad> pairs, ParamGrads(op));
    for (const ParamGrad& pair : pairs) {
      if (pair.grad == kEmptyVarName || reduced.insert(pair.grad).second) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          op.DebugName(), ": gradient ", pair.grad,
          " is named in op_role_var a second time, and therefore reduced a second time"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDense(const Program& program, const GradientAnalysis& analysis) {
  for (const Gradient& gradient : analysis.gradients) {
    const Var var = program.var(program.block(0).Resolve(gradient.grad));
    if (var.type() != pb::VarType::SELECTED_ROWS) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "gradient ", var.name(), ", completed by ", program.op(gradient.completed_by).DebugName(),
        ": expected a dense tensor, which Paddle's collectives take only, found SelectedRows (a "
        "sparse embedding)"));
  }
  return absl::OkStatus();
}

absl::Status CheckAccumulated(const Program& program, const GradientAnalysis& analysis) {
  for (const Gradient& gradient : analysis.gradients) {
    if (gradient.block == 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "gradient ", program.name(gradient.grad), ", completed by ",
        program.op(gradient.completed_by).DebugName(),
        ", is accumulated over several steps, but reduced in each of them, so that what is summed "
        "already is summed again"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WarnAboutReduction(absl::string_view pass, const Program& program,
                                PaddleExchange exchange, PassContext& context) {
  const absl::StatusOr<GradientAnalysis> analysis =
      AnalyzeGradients(program, context.distributed_params);
  if (!analysis.ok()) return context.RefuseOrWarn(pass, analysis.status());
  std::vector<absl::Status> problems =
      ReductionBlockers(program, *analysis, context.distributed_params);
  problems.push_back(CheckDense(program, *analysis));
  problems.push_back(CheckPairs(program));
  if (exchange == PaddleExchange::kBeforeFirstOptimize && !FirstOptimizeOp(program).valid()) {
    problems.push_back(CheckAnyOptimizeOp(program, *analysis));
  } else {
    problems.push_back(exchange == PaddleExchange::kBehindLastGradient
                           ? CheckUse(program, *analysis)
                           : CheckCompletion(program, *analysis, exchange));
    problems.push_back(CheckAccumulated(program, *analysis));
  }
  for (const absl::Status& problem : problems) {
    WEFT_RETURN_IF_ERROR(context.RefuseOrWarn(pass, problem));
  }
  return absl::OkStatus();
}

}  // namespace weft
