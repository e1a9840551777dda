#include "transpiler/passes/paddle_grad_all_reduce.h"

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/op_names.h"
#include "transpiler/passes/reduction_problems.h"
#include "transpiler/passes/rings.h"
#include "transpiler/pipeline/facts.h"

namespace weft {
namespace {

pb::OpDesc SyncCalc(const std::string& grad) {
  return BuildOp({"c_sync_calc_stream", {{"X", {grad}}}, {{"Out", {grad}}}, {}, kRoleBackward},
                 Dialect::kPaddle);
}

pb::OpDesc OnRing(const std::string& type, const std::string& grad, int ring) {
  return BuildOp({type, {{"X", {grad}}}, {{"Out", {grad}}}, {{"ring_id", ring}}, kRoleBackward},
                 Dialect::kPaddle);
}

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

// Everything for which grad-all-reduce refuses a program, and what it mends.
absl::Status Warn(const Program& program, PassContext& context) {
  const absl::StatusOr<GradientAnalysis> analysis =
      AnalyzeGradients(program, context.distributed_params);
  if (!analysis.ok()) {
    return context.RefuseOrWarn(PaddleGradAllReduce::kName, analysis.status());
  }
  std::vector<absl::Status> problems =
      ProblemsOfReduction(program, *analysis, context.distributed_params);
  problems.push_back(CheckPairs(program));
  problems.push_back(CheckWaits(program, *analysis));
  for (const absl::Status& problem : problems) {
    WEFT_RETURN_IF_ERROR(context.RefuseOrWarn(PaddleGradAllReduce::kName, problem));
  }
  return absl::OkStatus();
}

}  // namespace

void PaddleGradAllReduce::Options::Bind(OptionBinder& bind) { BindRings(bind, &nrings); }

const Contract& PaddleGradAllReduce::contract() const {
  static const auto* contract =
      new Contract{{kGradientsReduced}, {}, {kGradientsReduced, kParametersAveraged}};
  return *contract;
}

absl::StatusOr<bool> PaddleGradAllReduce::Run(PassContext& context, ProgramPair& programs) const {
  const Program& program = *programs.main;
  // For the checks of names; positions are Paddle's own.
  WEFT_ASSIGN_OR_RETURN(const std::vector<GradientPair> known, FindGradientPairs(program));
  if (known.empty()) {
    return absl::FailedPreconditionError(
        "the program has no gradients: no op of backward role names pairs of parameter and "
        "gradient in op_role_var");
  }
  WEFT_RETURN_IF_ERROR(CheckDistributedParams(program, context.distributed_params));
  WEFT_RETURN_IF_ERROR(Warn(program, context));
  Rewriter rewriter(programs.main);
  const absl::Span<const OpId> ops = program.block(0).ops();
  absl::optional<OpNames> op_name;
  if (context.notes != nullptr) op_name.emplace(program);
  int ring = -1;
  std::string last_met;
  for (size_t position = ops.size(); position-- > 0;) {
    const Op op = program.op(ops[position]);
    if (!IsBackward(op) || !op.has_role_vars()) continue;
    WEFT_ASSIGN_OR_RETURN(const std::vector<ParamGrad> pairs, ParamGrads(op));
    std::vector<pb::OpDesc> reductions;
    for (const ParamGrad& pair : pairs) {
      if (pair.grad == kEmptyVarName) continue;
      last_met = pair.grad;
      if (context.distributed_params.count(pair.param) > 0) continue;
      if (reductions.empty()) rewriter.InsertAfter(op.id(), SyncCalc(pair.grad));
      ring = (ring + 1) % options_.nrings;
      reductions.push_back(OnRing("c_allreduce_sum", pair.grad, ring));
      if (context.notes != nullptr) {
        context.notes->push_back({std::string(kName),
                                  pair.grad,
                                  "reduced",
                                  absl::StrCat("gradient of replicated parameter ", pair.param),
                                  {{"ring", absl::StrCat(ring)}, {"after", (*op_name)(op.id())}}});
      }
    }
    for (size_t i = reductions.size(); i-- > 0;) rewriter.InsertAfter(op.id(), reductions[i]);
  }
  for (OpId id : ops) {
    if (!IsOptimize(program.op(id))) continue;
    for (int r = 0; r < options_.nrings; ++r) {
      rewriter.InsertBefore(id, OnRing("c_sync_comm_stream", last_met, r));
    }
    break;
  }
  if (rewriter.empty()) return false;
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return true;
}

}  // namespace weft
