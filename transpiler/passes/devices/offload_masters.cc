#include "transpiler/passes/devices/offload_masters.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/op_edits.h"
#include "transpiler/passes/support/op_queries.h"

namespace weft {
namespace {

// The ops of the root block that write the variable.
std::vector<OpId> WritersOf(const Program& program, Symbol name) {
  std::vector<OpId> writers;
  for (OpId id : program.block(0).ops()) {
    if (absl::c_linear_search(program.op(id).output_args(), name)) writers.push_back(id);
  }
  return writers;
}

pb::VarDesc InFp32(const Var& var) {
  pb::VarDesc desc = var.ToProto();
  desc.mutable_type()->mutable_lod_tensor()->mutable_tensor()->set_data_type(pb::VarType::FP32);
  return desc;
}

bool HasMaster(const Op& op) {
  const absl::Span<const Symbol> masters = op.Input("MasterParam");
  return !masters.empty() && op.program().name(masters[0]) != kEmptyVarName;
}

bool HasHalfParam(const Op& op) {
  const absl::optional<TensorType> type = DeclaredType(op.program(), op.Input("Param")[0]);
  return type.has_value() && IsHalf(type->dtype);
}

}  // namespace

template <typename Visit>
absl::Status OffloadMasters::ForEachHalfState(const Op& op, const Visit& visit) {
  for (const SlotSchema& slot : FindOpSchema(op.type())->outputs()) {
    if (slot.in_place_of.empty() || slot.in_place_of == "Param") continue;
    for (Symbol state : op.Input(slot.in_place_of)) {
      const absl::optional<TensorType> type = DeclaredType(op.program(), state);
      if (!type.has_value() || !IsHalf(type->dtype)) continue;
      WEFT_RETURN_IF_ERROR(visit(slot.in_place_of, state));
    }
  }
  return absl::OkStatus();
}

bool OffloadMasters::LacksMaster(const Op& op) { return HasHalfParam(op) && !HasMaster(op); }

bool OffloadMasters::HasHalfState(const Op& op) {
  return !ForEachHalfState(op, [](absl::string_view, Symbol) {
            return absl::FailedPreconditionError("half");
          }).ok();
}

bool OffloadMasters::WouldDrop(const Op& op) {
  return HasHalfState(op) || (HasHalfParam(op) && HasMaster(op));
}

absl::Status OffloadMasters::Keep(const Op& op, pb::OpDesc* desc) {
  WEFT_RETURN_IF_ERROR(ForEachHalfState(
      op, [&](absl::string_view slot, Symbol state) { return MakeStateFp32(op, slot, state); }));
  return LacksMaster(op) ? MakeMaster(op, desc) : absl::OkStatus();
}

absl::Status OffloadMasters::Drop(const Op& op, pb::OpDesc* desc) {
  WEFT_RETURN_IF_ERROR(ForEachHalfState(op, [&](absl::string_view slot, Symbol state) {
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(), " input ", slot, " (", program_.name(state),
        "): expected state in fp32, found ", DTypeName(DeclaredType(op.program(), state)->dtype),
        "; use master_weights=fp32, which makes it fp32"));
  }));
  if (!HasHalfParam(op) || !HasMaster(op)) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(NeedStartup(op, "master_weights=none"));
  SetInput(desc, "MasterParam", {});
  SetOutput(desc, "MasterParamOut", {});
  SetBoolAttr(desc, "multi_precision", false);
  for (Symbol master : op.Input("MasterParam")) DropMaster(master);
  return absl::OkStatus();
}

absl::Status OffloadMasters::NeedStartup(const Op& op, absl::string_view what) const {
  if (startup_program_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(op.DebugName(), ": ", what, " changes the startup program; give it too"));
}

absl::Status OffloadMasters::MakeMaster(const Op& op, pb::OpDesc* desc) {
  const absl::Span<const Symbol> params = op.Input("Param");
  const std::string param(program_.name(params[0]));
  const TensorType type = *DeclaredType(op.program(), params[0]);
  if (FindOpSchema(op.type())->FindInput("MasterParam") == nullptr || params.size() != 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(), " input Param (", param, "): expected one parameter with master weights, ",
        "found ", DTypeName(type.dtype), " and no MasterParam; use master_weights=none, which ",
        "loses small updates"));
  }
  WEFT_RETURN_IF_ERROR(
      NeedStartup(op, "a parameter in half precision without MasterParam gets one, which"));
  const Symbol in_startup = startup_program_->FindSymbol(param);
  if (!in_startup.valid() || !startup_program_->block(0).FindVar(in_startup).valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat(op.DebugName(), " input Param (", param,
                     "): expected a parameter that the startup program declares: its master weight "
                     "begins with it"));
  }
  const std::string master = edits_.names.Of(absl::StrCat(param, "@MASTER"));
  pb::VarDesc var = TensorVar(master, DType::kFloat32, type.dims);
  var.set_persistable(true);
  edits_.main.AddVar(0, var);
  edits_.startup->AddVar(0, var);
  edits_.startup->Append(0,
                         BuildOp(CastOp(param, type.dtype, master, DType::kFloat32, kRoleForward)));
  SetInput(desc, "MasterParam", {master});
  SetOutput(desc, "MasterParamOut", {master});
  SetBoolAttr(desc, "multi_precision", true);
  return absl::OkStatus();
}

absl::Status OffloadMasters::MakeStateFp32(const Op& op, absl::string_view slot, Symbol state) {
  const std::string name(program_.name(state));
  WEFT_RETURN_IF_ERROR(NeedStartup(op, absl::StrCat("state in half precision (", name, ")")));
  const Symbol in_startup = startup_program_->FindSymbol(name);
  const VarId var = in_startup.valid() ? startup_program_->block(0).FindVar(in_startup) : VarId();
  const std::vector<OpId> writers =
      var.valid() ? WritersOf(*startup_program_, in_startup) : std::vector<OpId>();
  if (writers.size() != 1 || startup_program_->op(writers[0]).type() != "fill_constant") {
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(), " input ", slot, " (", name,
        "): expected state in fp32, or that begins with a constant of the startup program, found ",
        DTypeName(DeclaredType(op.program(), state)->dtype),
        "; build the program with multi_precision"));
  }
  pb::OpDesc begin = startup_program_->op(writers[0]).ToProto();
  SetIntAttr(&begin, "dtype", static_cast<int>(DType::kFloat32));
  edits_.startup->Replace(writers[0], begin);
  edits_.startup->ReplaceVar(var, InFp32(startup_program_->var(var)));
  const VarId in_main = program_.block(0).FindVar(state);
  edits_.main.ReplaceVar(in_main, InFp32(program_.var(in_main)));
  return absl::OkStatus();
}

void OffloadMasters::DropMaster(Symbol master) {
  const VarId var = program_.block(0).FindVar(master);
  if (var.valid()) edits_.main.EraseVar(var);
  const Symbol name = startup_program_->FindSymbol(program_.name(master));
  if (!name.valid()) return;
  for (OpId id : WritersOf(*startup_program_, name)) edits_.startup->Erase(id);
  const VarId in_startup = startup_program_->block(0).FindVar(name);
  if (in_startup.valid()) edits_.startup->EraseVar(in_startup);
}

}  // namespace weft
