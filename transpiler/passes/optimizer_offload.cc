#include "transpiler/passes/optimizer_offload.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/algebra.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"
#include "transpiler/passes/name_pattern.h"
#include "transpiler/passes/new_variables.h"
#include "transpiler/passes/op_builder.h"

namespace weft {
namespace {

using MasterWeights = OptimizerOffload::MasterWeights;
using Offload = OptimizerOffload::Offload;

bool IsOptimizer(const Op& op) {
  const OpSchema* const schema = FindOpSchema(op.type());
  return schema != nullptr && schema->Has(Trait::kOptimizer);
}

pb::OpDesc::Var* FindSlot(google::protobuf::RepeatedPtrField<pb::OpDesc::Var>* slots,
                          absl::string_view name) {
  for (pb::OpDesc::Var& slot : *slots) {
    if (slot.parameter() == name) return &slot;
  }
  return nullptr;
}

void SetSlot(google::protobuf::RepeatedPtrField<pb::OpDesc::Var>* slots, absl::string_view name,
             const std::vector<std::string>& variables) {
  pb::OpDesc::Var* slot = FindSlot(slots, name);
  if (slot == nullptr) {
    slot = slots->Add();
    slot->set_parameter(std::string(name));
  }
  slot->clear_arguments();
  for (const std::string& variable : variables) slot->add_arguments(variable);
}

pb::OpDesc::Attr* AttrOf(pb::OpDesc* op, absl::string_view name, pb::AttrType type) {
  for (pb::OpDesc::Attr& attr : *op->mutable_attrs()) {
    if (attr.name() == name) return &attr;
  }
  pb::OpDesc::Attr* const attr = op->add_attrs();
  attr->set_name(std::string(name));
  attr->set_type(type);
  return attr;
}

void SetBool(pb::OpDesc* op, absl::string_view name, bool value) {
  AttrOf(op, name, pb::BOOLEAN)->set_b(value);
}

void SetOnHost(pb::OpDesc* op) {
  AttrOf(op, kOpDeviceAttr, pb::STRING)->set_s(std::string(kHostDeviceName));
}

bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

class Offloader {
 public:
  Offloader(const OptimizerOffload::Options& options, ProgramPair& programs)
      : options_(options),
        program_(*programs.main),
        startup_program_(programs.startup),
        names_(programs),
        main_(programs.main) {
    if (programs.startup != nullptr) startup_.emplace(programs.startup);
  }

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
          absl::StrCat("params '", options_.params,
                       "': expected a pattern that matches a parameter that an "
                       "optimizer updates, found none"));
    }
    WEFT_ASSIGN_OR_RETURN(const bool changed, CommitEdits(&main_));
    if (!startup_.has_value()) return changed;
    WEFT_ASSIGN_OR_RETURN(const bool startup_changed, CommitEdits(&*startup_));
    return changed || startup_changed;
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

  void MoveToHost(const Op& op, pb::OpDesc desc) {
    if (op.StringAttr(kOpDeviceAttr) == kHostDeviceName) return;
    SetOnHost(&desc);
    main_.Replace(op.id(), desc);
  }

  absl::Status AddBranch(const Op& op) {
    const OpSchema* const schema = FindOpSchema(op.type());
    if (schema == nullptr || !schema->Has(Trait::kBranch)) {
      return absl::FailedPreconditionError(absl::StrCat(
          op.DebugName(), ": expected updates in the root block or in branches of it"));
    }
    if (options_.offload == Offload::kStates) {
      return absl::FailedPreconditionError(absl::StrCat(
          op.DebugName(), ": offload=states takes updates of the root block; use offload=full"));
    }
    for (int block : op.SubBlocks()) {
      for (OpId id : program_.block(block).ops()) {
        const Op inner = program_.op(id);
        if (!IsOptimizer(inner)) continue;
        WEFT_ASSIGN_OR_RETURN(const bool matches, Matches(inner));
        if (!matches) {
          return absl::FailedPreconditionError(absl::StrCat(
              inner.DebugName(), " input Param: expected that all parameters of its block match '",
              options_.params, "'"));
        }
        ++num_updates_;
      }
    }
    MoveToHost(op, op.ToProto());
    return absl::OkStatus();
  }

  absl::Status AddUpdate(const Op& op) {
    if (op.StringAttr(kOpDeviceAttr) == kHostDeviceName) {
      ++num_updates_;
      return absl::OkStatus();
    }
    WEFT_ASSIGN_OR_RETURN(const bool matches, Matches(op));
    if (!matches) return absl::OkStatus();
    ++num_updates_;
    pb::OpDesc desc = op.ToProto();
    WEFT_RETURN_IF_ERROR(CheckStates(op));
    WEFT_RETURN_IF_ERROR(SetMaster(op, &desc));
    if (!options_.bias_correction) WEFT_RETURN_IF_ERROR(DropBiasCorrection(op, &desc));
    const bool decays = op.HasAttr("with_decay") && op.BoolAttr("with_decay").value_or(false);
    if (decays && !options_.no_decay.empty() &&
        MatchesPattern(options_.no_decay, program_.name(op.Input("Param")[0]))) {
      SetBool(&desc, "with_decay", false);
    }
    if (options_.offload == Offload::kStates) WEFT_RETURN_IF_ERROR(AddDelta(op, &desc));
    MoveToHost(op, std::move(desc));
    return absl::OkStatus();
  }

  absl::optional<TensorType> TypeOf(Symbol name) const {
    const VarId var = program_.block(0).FindVar(name);
    return var.valid() ? DeclaredType(program_.var(var)) : absl::nullopt;
  }

  // The host computes in fp32.
  absl::Status CheckStates(const Op& op) const {
    const OpSchema& schema = *FindOpSchema(op.type());
    for (const SlotSchema& slot : schema.outputs()) {
      if (slot.in_place_of.empty() || slot.in_place_of == "Param") continue;
      for (Symbol state : op.Input(slot.in_place_of)) {
        const absl::optional<TensorType> type = TypeOf(state);
        if (!type.has_value() || !IsHalf(type->dtype)) continue;
        return absl::FailedPreconditionError(
            absl::StrCat(op.DebugName(), " input ", slot.in_place_of, " (", program_.name(state),
                         "): expected state in fp32, found ", DTypeName(type->dtype),
                         "; build the program with multi_precision"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status NeedStartup(const Op& op, absl::string_view what) const {
    if (startup_.has_value()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(op.DebugName(), ": ", what, " changes the startup program; give it too"));
  }

  absl::Status SetMaster(const Op& op, pb::OpDesc* desc) {
    const absl::Span<const Symbol> params = op.Input("Param");
    const absl::optional<TensorType> type = TypeOf(params[0]);
    if (!type.has_value() || !IsHalf(type->dtype)) return absl::OkStatus();
    const absl::Span<const Symbol> masters = op.Input("MasterParam");
    const bool has_master = !masters.empty() && program_.name(masters[0]) != kEmptyVarName;
    if (options_.master_weights == MasterWeights::kNone) {
      if (!has_master) return absl::OkStatus();
      WEFT_RETURN_IF_ERROR(NeedStartup(op, "master_weights=none"));
      SetSlot(desc->mutable_inputs(), "MasterParam", {});
      SetSlot(desc->mutable_outputs(), "MasterParamOut", {});
      SetBool(desc, "multi_precision", false);
      for (Symbol master : masters) DropMaster(master);
      return absl::OkStatus();
    }
    if (has_master) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(op.DebugName(), " input Param (", program_.name(params[0]),
                     "): expected a parameter with master weights, found ", DTypeName(type->dtype),
                     " without MasterParam; build the program with multi_precision, or use "
                     "master_weights=none, which loses small updates"));
  }

  void DropMaster(Symbol master) {
    const VarId var = program_.block(0).FindVar(master);
    if (var.valid()) main_.EraseVar(var);
    const Program& startup = *startup_program_;
    const Symbol name = startup.FindSymbol(program_.name(master));
    if (!name.valid()) return;
    for (OpId id : startup.block(0).ops()) {
      if (absl::c_linear_search(startup.op(id).output_args(), name)) startup_->Erase(id);
    }
    const VarId in_startup = startup.block(0).FindVar(name);
    if (in_startup.valid()) startup_->EraseVar(in_startup);
  }

  // Powers of 0 correct nothing. They are no state: parameters from a file would bring others.
  absl::Status DropBiasCorrection(const Op& op, pb::OpDesc* desc) {
    const bool is_adam = op.type() == "adam" || op.type() == "adamw";
    if (!is_adam) {
      return absl::FailedPreconditionError(
          absl::StrCat(op.DebugName(), ": expected adam or adamw for bias_correction=off"));
    }
    for (const char* slot : {"Beta1Pow", "Beta2Pow"}) {
      const std::string power = names_.Next(absl::StrCat(Name(op.Input("Param")[0]), "@", slot));
      main_.AddVar(0, TensorVar(power, DType::kFloat32, {1}));
      main_.InsertBefore(op.id(), Zeros(power, DType::kFloat32, {1}));
      SetSlot(desc->mutable_inputs(), slot, {power});
      SetSlot(desc->mutable_outputs(), absl::StrCat(slot, "Out"), {power});
    }
    return absl::OkStatus();
  }

  // On the host.
  static pb::OpDesc Zeros(const std::string& variable, DType dtype, const Dims& dims) {
    pb::OpDesc zeros = BuildOp({"fill_constant",
                                {},
                                {{"Out", {variable}}},
                                {{"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                                 {"dtype", static_cast<int32_t>(dtype)},
                                 {"value", 0.0f}},
                                kRoleOptimize},
                               Dialect::kWeft);
    SetOnHost(&zeros);
    return zeros;
  }

  // Why the change of the parameter depends on it; empty: it does not.
  static std::string WhyDependsOnParam(const Op& op) {
    if (op.BoolAttr("with_decay").value_or(false) && op.FloatAttr("coeff").value_or(0) != 0) {
      return "it decays the parameter";
    }
    if (!op.StringAttr("regularization_method").value_or("").empty()) {
      return "it adds the parameter to the gradient";
    }
    for (const char* type : {"sgd", "momentum", "adam", "adamw"}) {
      if (op.type() == type) return "";
    }
    return "what it changes may depend on the parameter";
  }

  absl::Status AddDelta(const Op& op, pb::OpDesc* desc) {
    const std::string why = WhyDependsOnParam(op);
    const absl::Span<const Symbol> params = op.Input("Param");
    const absl::optional<TensorType> type = TypeOf(params[0]);
    const bool is_known = params.size() == 1 && type.has_value() &&
                          type->dtype == DType::kFloat32 && NumElements(type->dims) >= 0;
    if (!why.empty() || !is_known) {
      return absl::FailedPreconditionError(absl::StrCat(
          op.DebugName(), " input Param (", program_.name(params[0]), "): offload=states ",
          why.empty() ? "takes one fp32 parameter of known dimensions"
                      : absl::StrCat("cannot: ", why),
          "; use offload=full"));
    }
    const std::string param = Name(params[0]);
    const std::string delta = names_.Of(absl::StrCat(param, "@DELTA"));
    main_.AddVar(0, TensorVar(delta, type->dtype, type->dims));
    main_.InsertBefore(op.id(), Zeros(delta, type->dtype, type->dims));
    SetSlot(desc->mutable_inputs(), "Param", {delta});
    SetSlot(desc->mutable_outputs(), "ParamOut", {delta});
    main_.InsertAfter(op.id(), BuildOp({"elementwise_add",
                                        {{"X", {param}}, {"Y", {delta}}},
                                        {{"Out", {param}}},
                                        {},
                                        kRoleOptimize},
                                       Dialect::kWeft));
    return absl::OkStatus();
  }

  const OptimizerOffload::Options& options_;
  const Program& program_;
  const Program* const startup_program_;
  UniqueNames names_;
  Rewriter main_;
  absl::optional<Rewriter> startup_;
  int num_updates_ = 0;
};

}  // namespace

void OptimizerOffload::Options::Bind(OptionBinder& bind) {
  bind.Choice("master_weights", &master_weights,
              "of parameters in half precision: kept in fp32 on the host, or none",
              {{"fp32", MasterWeights::kFp32}, {"none", MasterWeights::kNone}});
  bind.Choice("offload", &offload,
              "what the host has: the update, after which weights return, or the states, and what "
              "the weights change by returns",
              {{"full", Offload::kFull}, {"states", Offload::kStates}});
  bind.String("params", &params, "parameters whose optimizers go to the host; may have *");
  bind.String("no_decay", &no_decay, "parameters that adamw does not decay; may have *");
  bind.Bool("bias_correction", &bias_correction,
            "whether adam and adamw correct moments for their start at 0");
}

Claims OptimizerOffload::claims(const PassContext& context) const {
  const bool computes_the_same = options_.master_weights == MasterWeights::kFp32 &&
                                 options_.offload == Offload::kFull && options_.bias_correction &&
                                 options_.no_decay.empty();
  return computes_the_same ? Claims() : Claims::Of(Claims::Computation::kChanged);
}

absl::StatusOr<bool> OptimizerOffload::Run(PassContext& context, ProgramPair& programs) const {
  if (context.dialect == Dialect::kPaddle) {
    return absl::FailedPreconditionError("offloaded optimizers need dialect weft");
  }
  return Offloader(options_, programs).Run();
}

}  // namespace weft
