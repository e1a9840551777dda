#include "transpiler/passes/paddle_warnings.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "proto/op_role.h"
#include "transpiler/passes/reduction_problems.h"

namespace weft {
namespace {

// The rings are waited for once, before the first op of optimize role: a gradient that is complete
// only behind it is used while it is being reduced.
absl::Status CheckWaits(const Program& program, const GradientAnalysis& analysis) {
  OpId first_optimize;
  std::vector<bool> is_behind(program.op_id_limit(), false);
  for (OpId id : program.block(0).ops()) {
    is_behind[id.value()] = first_optimize.valid();
    if (!first_optimize.valid() && IsOptimize(program.op(id))) first_optimize = id;
  }
  for (const Gradient& gradient : analysis.gradients) {
    if (!is_behind[gradient.completed_by.value()] || !gradient.first_use.valid()) continue;
    if (gradient.block != 0) continue;  // a warning of its own
    return absl::FailedPreconditionError(absl::StrCat(
        "gradient ", program.name(gradient.grad),
        " is not waited for: ", program.op(gradient.completed_by).DebugName(),
        " completes it, and ", program.op(gradient.first_use).DebugName(),
        " uses it, behind the only wait, before ", program.op(first_optimize).DebugName()));
  }
  return absl::OkStatus();
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

// What is wrong anywhere, and, where gradients travel one by one, with the waits.
absl::Status Warn(absl::string_view pass, const Program& program, bool one_by_one,
                  PassContext& context) {
  const absl::StatusOr<GradientAnalysis> analysis =
      AnalyzeGradients(program, context.distributed_params);
  if (!analysis.ok()) return context.RefuseOrWarn(pass, analysis.status());
  std::vector<absl::Status> problems =
      ProblemsOfReduction(program, *analysis, context.distributed_params);
  problems.push_back(CheckDense(program, *analysis));
  problems.push_back(CheckPairs(program));
  if (one_by_one) {
    problems.push_back(CheckWaits(program, *analysis));
    problems.push_back(CheckAccumulated(program, *analysis));
  }
  for (const absl::Status& problem : problems) {
    WEFT_RETURN_IF_ERROR(context.RefuseOrWarn(pass, problem));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WarnOfGradients(absl::string_view pass, const Program& program, PassContext& context) {
  return Warn(pass, program, /*one_by_one=*/false, context);
}

absl::Status WarnOfReduction(absl::string_view pass, const Program& program, PassContext& context) {
  return Warn(pass, program, /*one_by_one=*/true, context);
}

}  // namespace weft
