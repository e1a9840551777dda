#include "transpiler/passes/devices/optimizer_offload.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/algebra.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"
#include "transpiler/passes/devices/accumulations.h"
#include "transpiler/passes/devices/offload_branch.h"
#include "transpiler/passes/devices/offload_delta.h"
#include "transpiler/passes/devices/offload_masters.h"
#include "transpiler/passes/support/name_pattern.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/op_edits.h"
#include "transpiler/passes/support/op_queries.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/passes/updates/param_options.h"

namespace weft {
namespace {

using MasterWeights = OptimizerOffload::MasterWeights;
using Offload = OptimizerOffload::Offload;

bool IsOptimizer(const Op& op) { return HasTrait(op, Trait::kOptimizer); }

class UpdateOffloader {
 public:
  UpdateOffloader(const OptimizerOffload::Options& options, ProgramPair& programs)
      : options_(options),
        program_(*programs.main),
        edits_(programs),
        masters_(programs, &edits_),
        delta_(program_, &edits_) {}

  absl::StatusOr<bool> Run() {
    const Block root = program_.block(0);
    for (OpId id : root.ops()) {
      const Op op = program_.op(id);
      if (IsOptimizer(op)) {
        WEFT_RETURN_IF_ERROR(AddUpdate(op));
      } else if (HoldsUpdates(op)) {
        WEFT_RETURN_IF_ERROR(AddBranch(op));
      } else if (IsOfSchedule(op)) {
        MoveToHost(op, op.ToProto());
      }
    }
    if (num_updates_ == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("offload_params '", options_.params,
                       "': expected a pattern that matches a parameter that an "
                       "optimizer updates, found none"));
    }
    return edits_.Commit();
  }

 private:
  std::string Name(Symbol symbol) const { return std::string(program_.name(symbol)); }

  // Whether the op updates parameters that match: all, or none.
  absl::StatusOr<bool> Matches(const Op& op) const {
    const absl::Span<const Symbol> params = op.Input("Param");
    const auto matches = [&](Symbol param) {
      return MatchesPattern(options_.params, program_.name(param));
    };
    const bool any = absl::c_any_of(params, matches);
    if (any && !absl::c_all_of(params, matches)) {
      return absl::FailedPreconditionError(
          absl::StrCat(op.DebugName(), " input Param: expected that all of its parameters match '",
                       options_.params, "', or none"));
    }
    return any;
  }

  static bool IsOfSchedule(const Op& op) {
    const OpSchema* const schema = FindOpSchema(op.type());
    return (op.role() & kRoleLrSched) != 0 && schema != nullptr && op.SubBlocks().empty() &&
           !schema->Has(Trait::kCollective) && !schema->Has(Trait::kStreamSync) &&
           AlgebraOf(op, schema) != Algebra::kRandom;
  }

  bool HoldsUpdates(const Op& op) const {
    return absl::c_any_of(op.SubBlocks(), [&](int block) {
      return absl::c_any_of(program_.block(block).ops(), [&](OpId id) {
        return IsOptimizer(program_.op(id)) || HoldsUpdates(program_.op(id));
      });
    });
  }

  static bool IsOnHost(const Op& op) { return op.StringAttr(kOpDeviceAttr) == kHostDeviceName; }

  void MoveToHost(const Op& op, pb::OpDesc desc) {
    SetOnHost(&desc);
    const bool is_new = desc.SerializeAsString() != op.ToProto().SerializeAsString();
    if (is_new) edits_.main.Replace(op.id(), desc);
  }

  absl::Status Refused(const Op& op, absl::string_view what) const {
    return absl::FailedPreconditionError(
        absl::StrCat(op.DebugName(), " input Param (", Name(op.Input("Param")[0]), "): ", what));
  }

  absl::Status AddBranch(const Op& op) {
    if (!HasTrait(op, Trait::kBranch)) {
      return absl::FailedPreconditionError(absl::StrCat(
          op.DebugName(), ": expected updates in the root block or in branches of it"));
    }
    OffloadBranch branch(op);
    for (int block : op.SubBlocks()) {
      for (OpId id : program_.block(block).ops()) {
        WEFT_RETURN_IF_ERROR(AddOpOfBranch(&branch, program_.op(id)));
      }
    }
    pb::OpDesc desc = op.ToProto();
    branch.Apply(&desc);
    MoveToHost(op, std::move(desc));
    if (!accumulations_.has_value()) accumulations_.emplace(program_);
    for (OpId id : accumulations_->Of(op.id())) {
      MoveToHost(program_.op(id), program_.op(id).ToProto());
    }
    return absl::OkStatus();
  }

  // Updates go to the host as they are, and an option that would change one is refused; except that
  // offload=states splits those of a branch of the root block. `branch` is null in branches of
  // that.
  absl::Status AddOpOfBranch(OffloadBranch* branch, const Op& op) {
    for (int block : op.SubBlocks()) {
      for (OpId id : program_.block(block).ops()) {
        WEFT_RETURN_IF_ERROR(AddOpOfBranch(nullptr, program_.op(id)));
      }
    }
    if (!IsOptimizer(op)) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const bool matches, Matches(op));
    if (!matches) {
      return absl::FailedPreconditionError(
          absl::StrCat(op.DebugName(), " input Param: expected that all parameters of its block ",
                       "match '", options_.params, "'"));
    }
    if (!options_.bias_correction) {
      return Refused(op, "bias_correction=false takes updates of the root block");
    }
    if (options_.gradient_copy.has_value()) {
      return Refused(op, "gradient_copy takes updates of the root block");
    }
    if (KeepsMasters() ? masters_.WouldKeep(op) : masters_.WouldDrop(op)) {
      return Refused(op, KeepsMasters()
                             ? "updates of the root block alone are given master weights "
                               "and fp32 state; build the program with multi_precision"
                             : "master_weights=none takes updates of the root block");
    }
    ++num_updates_;
    if (options_.offload == Offload::kFull) return absl::OkStatus();
    if (branch == nullptr) {
      return Refused(op,
                     "offload=states takes updates of the root block and of its branches, and not "
                     "of branches in these; use offload=full");
    }
    WEFT_RETURN_IF_ERROR(CheckIsNotOnHost(branch->op(), op));
    pb::OpDesc desc = op.ToProto();
    WEFT_RETURN_IF_ERROR(delta_.Split(op, branch, &desc));
    edits_.main.Replace(op.id(), desc);
    return absl::OkStatus();
  }

  bool KeepsMasters() const { return options_.master_weights == MasterWeights::kFp32; }

  // `placed`: the op of the root block that is the update, or has it.
  absl::Status CheckIsNotOnHost(const Op& placed, const Op& update) const {
    if (!IsOnHost(placed)) return absl::OkStatus();
    return Refused(update,
                   "expected an update that op_device does not put on the host already, for "
                   "offload=states, bias_correction=false and gradient_copy");
  }

  absl::Status AddUpdate(const Op& op) {
    WEFT_ASSIGN_OR_RETURN(const bool matches, Matches(op));
    if (!matches && !IsOnHost(op)) return absl::OkStatus();
    ++num_updates_;
    if (!matches) return absl::OkStatus();
    const bool changes_formula = !options_.bias_correction ||
                                 options_.offload == Offload::kStates ||
                                 options_.gradient_copy.has_value();
    if (changes_formula) WEFT_RETURN_IF_ERROR(CheckIsNotOnHost(op, op));
    pb::OpDesc desc = op.ToProto();
    WEFT_RETURN_IF_ERROR(KeepsMasters() ? masters_.Keep(op, &desc) : masters_.Drop(op, &desc));
    if (!options_.bias_correction) WEFT_RETURN_IF_ERROR(DropBiasCorrection(op, &desc));
    if (options_.offload == Offload::kStates)
      WEFT_RETURN_IF_ERROR(delta_.Split(op, nullptr, &desc));
    if (options_.gradient_copy.has_value()) NarrowGradients(op, &desc);
    MoveToHost(op, std::move(desc));
    return absl::OkStatus();
  }

  // The gradients that the update reads by now go to the host in half precision.
  void NarrowGradients(const Op& op, pb::OpDesc* desc) {
    const DType half = *options_.gradient_copy;
    std::vector<std::string> arrived;
    for (const pb::OpDesc::Var& slot : desc->inputs()) {
      if (slot.parameter() == "Grad") arrived = {slot.arguments().begin(), slot.arguments().end()};
    }
    for (size_t i = 0; i < arrived.size(); ++i) {
      const absl::optional<TensorType> type = DeclaredType(program_, op.Input("Grad")[i]);
      const bool is_float = type.has_value() && type->kind == TensorType::Kind::kDense &&
                            type->dtype == DType::kFloat32;
      if (!is_float) continue;
      const std::string sent =
          edits_.names.Of(absl::StrCat(arrived[i], "@", absl::AsciiStrToUpper(DTypeName(half))));
      const std::string whole = edits_.names.Of(absl::StrCat(arrived[i], "@ROUNDED"));
      edits_.main.AddVar(0, TensorVar(sent, half, type->dims));
      edits_.main.AddVar(0, TensorVar(whole, DType::kFloat32, type->dims));
      edits_.main.InsertBefore(
          op.id(), BuildOp(CastOp(arrived[i], DType::kFloat32, sent, half, kRoleOptimize)));
      pb::OpDesc back = BuildOp(CastOp(sent, half, whole, DType::kFloat32, kRoleOptimize));
      SetOnHost(&back);
      edits_.main.InsertBefore(op.id(), back);
      arrived[i] = whole;
    }
    SetInput(desc, "Grad", arrived);
  }

  // Powers of 0 correct nothing. They are no state: parameters from a file would bring others.
  absl::Status DropBiasCorrection(const Op& op, pb::OpDesc* desc) {
    const bool is_adam = op.type() == "adam" || op.type() == "adamw";
    if (!is_adam) {
      return absl::FailedPreconditionError(
          absl::StrCat(op.DebugName(), ": expected adam or adamw for bias_correction=false"));
    }
    if (ParamOptions::HasOptions(op) && op.Input("EpsilonTensor").size() > 0) {
      return Refused(op, "bias_correction=false adds epsilon as it is; leave adam_epsilon out");
    }
    for (const char* slot : {"Beta1Pow", "Beta2Pow"}) {
      const std::string power =
          edits_.names.Next(absl::StrCat(Name(op.Input("Param")[0]), "@", slot));
      edits_.main.AddVar(0, TensorVar(power, DType::kFloat32, {1}));
      edits_.main.InsertBefore(op.id(), OffloadDelta::HostConstant(power, {1}, 0));
      SetInput(desc, slot, {power});
      SetOutput(desc, absl::StrCat(slot, "Out"), {power});
    }
    return absl::OkStatus();
  }

  const OptimizerOffload::Options& options_;
  const Program& program_;
  ProgramEdits edits_;
  OffloadMasters masters_;
  OffloadDelta delta_;
  absl::optional<Accumulations> accumulations_;  // if a branch updates
  int num_updates_ = 0;
};

}  // namespace

void OptimizerOffload::Options::Bind(OptionBinder& bind) {
  bind.Choice("master_weights", &master_weights,
              "whether the host keeps fp32 master weights of half-precision parameters",
              {{"fp32", MasterWeights::kFp32}, {"none", MasterWeights::kNone}});
  bind.Choice("offload", &offload,
              "full: the host updates the parameters and returns them; states: it holds the states "
              "and returns what the parameters change by",
              {{"full", Offload::kFull}, {"states", Offload::kStates}});
  bind.String("offload_params", &params, "parameters whose optimizers go to the host; may have *");
  bind.OldName("params");
  bind.Bool("bias_correction", &bias_correction,
            "whether adam and adamw correct moments for their start at 0");
  bind.Choice("gradient_copy", &gradient_copy,
              "the element type in which fp32 gradients are copied to the host",
              {{"native", absl::nullopt}, {"fp16", DType::kFloat16}, {"bf16", DType::kBFloat16}});
}

void OptimizerOffload::Foresee(const ConstProgramPair& programs, const PassContext& context,
                               Forecast* forecast) const {
  const Program& main = *programs.main;
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    if (!IsOptimizer(op)) continue;
    for (Symbol param : op.Input("Param")) {
      const absl::string_view name = main.name(param);
      if (!MatchesPattern(options_.params, name)) continue;
      forecast->updated_on_host.emplace(name);
      forecast->raises_precision |= OffloadMasters::WouldKeep(op);
    }
  }
}

Claims OptimizerOffload::claims(const PassContext& context) const {
  const bool computes_the_same = options_.master_weights == MasterWeights::kFp32 &&
                                 options_.offload == Offload::kFull && options_.bias_correction &&
                                 !context.target.forecast.raises_precision;
  Claims claims = computes_the_same ? Claims() : Claims::Of(Claims::Computation::kChanged);
  claims.rounds_gradients = options_.gradient_copy.has_value();
  return claims;
}

absl::StatusOr<bool> OptimizerOffload::Run(const PassContext& context,
                                           ProgramPair& programs) const {
  if (context.target.dialect == Dialect::kPaddle) {
    return absl::FailedPreconditionError("offloaded optimizers need dialect weft");
  }
  return UpdateOffloader(options_, programs).Run();
}

}  // namespace weft
