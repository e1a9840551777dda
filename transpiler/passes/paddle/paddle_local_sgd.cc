#include "transpiler/passes/paddle/paddle_local_sgd.h"

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "ops/analysis/training/gradients.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/paddle/paddle_ops.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"
#include "transpiler/passes/support/startup_parameters.h"

namespace weft {
namespace {

std::string SnapshotOf(const std::string& param) { return param + "@SNAPSHOT"; }

// An op that updates a parameter.
struct Update {
  OpId op;
  std::string param;
};

// All updates of the root block, in program order.
absl::StatusOr<std::vector<Update>> FindPaddleUpdates(const Program& program) {
  std::vector<Update> updates;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (!op.HasInputSlot("Param") || !op.HasInputSlot("Grad") || !op.HasInputSlot("LearningRate")) {
      continue;
    }
    if (op.Input("Param").empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(op.DebugName(), " input Param: expected a parameter, found none"));
    }
    updates.push_back({id, std::string(program.name(op.Input("Param")[0]))});
  }
  if (!updates.empty()) return updates;
  return absl::FailedPreconditionError(
      "no op of the root block updates a parameter: none has slots Param, Grad and LearningRate");
}

// Declares the snapshot of a parameter with this type.
absl::Status DeclareSnapshot(const Program& program, const std::string& param,
                             const pb::VarType::TensorDesc& tensor, Rewriter* rewriter) {
  const std::string name = SnapshotOf(param);
  if (program.block(0).FindVar(name).valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("variable ", name, " already exists: parameters are already averaged"));
  }
  pb::VarDesc snapshot = PaddleTensorVar(name, tensor);
  snapshot.set_persistable(true);
  rewriter->AddVar(0, snapshot);
  return absl::OkStatus();
}

}  // namespace

void PaddleLocalSgd::Options::Bind(OptionBinder& bind) { BindRings(bind, &nrings); }

Contract PaddleLocalSgd::contract() const {
  return Contract()
      .Needs(kParametersEqual)
      .ProvidesOnce(kParametersAveraged)
      .ConflictsWith(kGradientsReduced);
}

Claims PaddleLocalSgd::claims(const PassContext& context) const {
  return Claims::Of(AveragingSchedule());  // every step
}

absl::Status PaddleLocalSgd::RewriteMain(const PassContext& context, Program* main) const {
  WEFT_ASSIGN_OR_RETURN(const int trainers, PaddleTrainers(context));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Update> updates, FindPaddleUpdates(*main));
  WEFT_RETURN_IF_ERROR(CheckDistributedParams(*main, context.setting.distributed_params));
  WEFT_RETURN_IF_ERROR(context.RefuseOrWarn(kName, RefuseCompressedGradients(*main)));
  Rewriter rewriter(main);
  std::set<std::string> declared;
  std::vector<const Update*> averaged;  // in program order
  for (const Update& update : updates) {
    if (context.setting.distributed_params.count(update.param) == 0) averaged.push_back(&update);
  }
  OpTemplate sync_calc(PaddleSyncCalc("", kRoleOptimize));
  OpTemplate scale(PaddleScale("", 1.0 / trainers, kRoleOptimize));
  OpTemplate assign(PaddleAssign("", "", kRoleOptimize));
  OpTemplate subtract(BuildOp({"elementwise_sub", {}, {}, {}, kRoleOptimize}, Dialect::kPaddle));
  const auto subtract_from_snapshot = [&](const std::string& param) -> const pb::OpDesc& {
    return subtract.In("Y", {param}).Over({SnapshotOf(param)}, {param});
  };
  std::vector<OpTemplate> all_reduce;  // by ring
  for (int r = 0; r < options_.nrings; ++r) {
    all_reduce.emplace_back(PaddleAllReduceSum("", r, kRoleOptimize));
  }
  int ring = -1;
  for (size_t i = averaged.size(); i-- > 0;) {
    const auto& [op, param] = *averaged[i];
    if (declared.insert(param).second) {
      WEFT_ASSIGN_OR_RETURN(const auto tensor, TensorOfVar(main->op(op), param));
      WEFT_RETURN_IF_ERROR(DeclareSnapshot(*main, param, tensor, &rewriter));
    }
    ring = (ring + 1) % options_.nrings;
    rewriter.InsertAfter(op, subtract_from_snapshot(param));
    rewriter.InsertAfter(op, sync_calc.InPlace({param}));
    rewriter.InsertAfter(op, all_reduce[ring].InPlace({param}));
    if (context.sink.remarks == nullptr) continue;
    context.sink.Explain(kName, param, "averaged", "replicated parameter, after every step",
                         {{"ring", absl::StrCat(ring)}, {"after", main->op(op).DebugName()}});
  }
  WEFT_RETURN_IF_ERROR(ExplainLocalGradients(kName, *main, context));
  for (int r = 0; r < options_.nrings; ++r) {
    rewriter.Append(0, PaddleSyncComm(updates.front().param, r, kRoleOptimize));
  }
  for (const Update* update : averaged) {
    const std::string& param = update->param;
    rewriter.Append(0, scale.InPlace({param}));
    rewriter.Append(0, subtract_from_snapshot(param));
    rewriter.Append(0, assign.Over({param}, {SnapshotOf(param)}));
  }
  return rewriter.Commit();
}

absl::Status PaddleLocalSgd::RewriteStartup(const PassContext& context,
                                            const ProgramPair& programs) const {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> params, StartupParameters(programs));
  Rewriter rewriter(programs.startup);
  for (const std::string& param : params) {
    if (context.setting.distributed_params.count(param) > 0) continue;
    WEFT_ASSIGN_OR_RETURN(const auto tensor, TensorOfVar(*programs.startup, param));
    WEFT_RETURN_IF_ERROR(DeclareSnapshot(*programs.startup, param, tensor, &rewriter));
    rewriter.Append(0, PaddleAssign(param, SnapshotOf(param), kRoleForward));
  }
  return rewriter.Commit();
}

absl::StatusOr<bool> PaddleLocalSgd::Run(const PassContext& context, ProgramPair& programs) const {
  // First: the main program, unchanged, determines the parameters.
  if (programs.startup != nullptr) {
    WEFT_RETURN_IF_ERROR(Annotate("startup program", RewriteStartup(context, programs)));
  }
  WEFT_RETURN_IF_ERROR(RewriteMain(context, programs.main));
  return true;
}

}  // namespace weft
