#include "transpiler/passes/paddle/paddle_gradients.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/training/gradients.h"
#include "proto/op_role.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/paddle/paddle_ops.h"

namespace weft {
namespace {

// Whether op `a` of the root block comes after op `b`; false if `b` is invalid.
bool IsAfter(const Program& program, OpId a, OpId b) {
  return b.valid() && program.op(a).block() == 0 &&
         program.op(a).position() > program.op(b).position();
}

// The wait or reduction before the first optimize op is too early for a gradient that is completed
// after it.
absl::Status CheckCompletion(const Program& program, const GradientAnalysis& analysis,
                             PaddleExchange exchange) {
  const OpId optimize = FirstOptimizeOp(program);
  const bool waits = exchange == PaddleExchange::kOneByOne;
  for (const Gradient& gradient : analysis.gradients) {
    if (!gradient.first_use.valid()) continue;
    if (!IsAfter(program, gradient.completed_by, optimize)) continue;
    if (gradient.block != 0) continue;  // CheckAccumulated
    return absl::FailedPreconditionError(
        absl::StrCat("gradient ", program.name(gradient.grad), " is ",
                     waits ? "not waited for: " : "reduced before it is complete: ",
                     program.op(gradient.completed_by).DebugName(), " completes it, and ",
                     program.op(gradient.first_use).DebugName(), " uses it, after the only ",
                     waits ? "wait" : "reduction", ", before ", program.op(optimize).DebugName()));
  }
  return absl::OkStatus();
}

// The reduction after the last gradient is too late for a gradient that is used before it.
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
                     " uses it before the only reduction, after ", program.op(last).DebugName()));
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
        ": expected a dense tensor, as Paddle's collectives require, found SelectedRows (a sparse "
        "embedding); option:sparse dense makes it dense"));
  }
  return absl::OkStatus();
}

absl::Status CheckAccumulated(const Program& program, const GradientAnalysis& analysis) {
  for (const Gradient& gradient : analysis.gradients) {
    if (gradient.block == 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "gradient ", program.name(gradient.grad), ", completed by ",
        program.op(gradient.completed_by).DebugName(),
        ", is accumulated over several steps, but reduced in each of them, so values that are "
        "already summed are summed again"));
  }
  return absl::OkStatus();
}

}  // namespace
absl::StatusOr<std::vector<PaddleGradient>> WalkGradients(const Program& program,
                                                          const PassContext& context) {
  // Checks the names.
  WEFT_RETURN_IF_ERROR(FindGradientPairs(program).status());
  WEFT_RETURN_IF_ERROR(CheckDistributedParams(program, context.setting.distributed_params));
  std::vector<PaddleGradient> gradients;
  const absl::Span<const OpId> ops = program.block(0).ops();
  for (size_t position = ops.size(); position-- > 0;) {
    const Op op = program.op(ops[position]);
    if (!IsBackward(op) || !op.has_role_vars()) continue;
    WEFT_ASSIGN_OR_RETURN(const std::vector<ParamGrad> pairs, ParamGrads(op));
    for (const ParamGrad& pair : pairs) {
      if (pair.grad == kEmptyVarName) continue;
      gradients.push_back({op.id(), pair.param, pair.grad,
                           context.setting.distributed_params.count(pair.param) > 0});
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
                       absl::FunctionRef<std::string(const PaddleGradient&)> output,
                       std::vector<OpTemplate>* collectives, Rewriter* rewriter) {
  const size_t nrings = collectives->size();
  OpTemplate sync_calc(PaddleSyncCalc("", kRoleBackward));
  size_t num_replicated = 0;
  for (size_t begin = 0, end = 0; begin < gradients.size(); begin = end) {
    const OpId op = gradients[begin].op;
    const size_t first = num_replicated;
    std::vector<const PaddleGradient*> of_op;
    for (; end < gradients.size() && gradients[end].op == op; ++end) {
      if (!gradients[end].distributed) of_op.push_back(&gradients[end]);
    }
    if (of_op.empty()) continue;
    num_replicated += of_op.size();
    rewriter->InsertAfter(op, sync_calc.InPlace({of_op.front()->grad}));
    for (size_t i = of_op.size(); i-- > 0;) {
      OpTemplate& collective = (*collectives)[(first + i) % nrings];
      rewriter->InsertAfter(op, collective.Over({of_op[i]->grad}, {output(*of_op[i])}));
    }
  }
  const OpId optimize = FirstOptimizeOp(program);
  if (gradients.empty() || !optimize.valid()) return;
  for (size_t ring = 0; ring < nrings; ++ring) {
    rewriter->InsertBefore(
        optimize, PaddleSyncComm(gradients.back().grad, static_cast<int>(ring), kRoleBackward));
  }
}

void ExplainCollectives(absl::string_view pass, absl::string_view what, const Program& program,
                        absl::Span<const PaddleGradient> gradients, int nrings,
                        const PassContext& context) {
  if (context.sink.remarks == nullptr) return;
  int next = 0;
  for (const PaddleGradient& gradient : gradients) {
    if (gradient.distributed) continue;
    context.sink.Explain(
        pass, gradient.grad, std::string(what),
        absl::StrCat("gradient of replicated parameter ", gradient.param),
        {{"ring", absl::StrCat(next++ % nrings)}, {"after", program.op(gradient.op).DebugName()}});
  }
  ExplainSkipped(pass, what, gradients, /*why=*/"", context);
}

void ExplainSkipped(absl::string_view pass, absl::string_view what,
                    absl::Span<const PaddleGradient> gradients, absl::string_view why,
                    const PassContext& context) {
  if (context.sink.remarks == nullptr) return;
  for (const PaddleGradient& gradient : gradients) {
    if (!gradient.distributed && why.empty()) continue;
    context.sink.Explain(pass, gradient.grad, absl::StrCat("not ", what),
                         gradient.distributed ? "its parameter is distributed" : std::string(why),
                         {{"parameter", gradient.param}});
  }
}

OpId FirstOptimizeOp(const Program& program) {
  for (OpId id : program.block(0).ops()) {
    if (IsOptimize(program.op(id))) return id;
  }
  return OpId();
}

absl::Status WarnAboutReduction(absl::string_view pass, const Program& program,
                                PaddleExchange exchange, const PassContext& context) {
  const absl::StatusOr<GradientAnalysis> analysis =
      AnalyzeGradients(program, context.setting.distributed_params);
  if (!analysis.ok()) return context.RefuseOrWarn(pass, analysis.status());
  std::vector<absl::Status> problems =
      ReductionBlockers(program, *analysis, context.setting.distributed_params);
  problems.push_back(CheckDense(program, *analysis));
  problems.push_back(CheckPairs(program));
  if (exchange == PaddleExchange::kBeforeFirstOptimize && !FirstOptimizeOp(program).valid()) {
    problems.push_back(CheckAnyOptimizeOp(program, *analysis));
  } else {
    problems.push_back(exchange == PaddleExchange::kAfterLastGradient
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
