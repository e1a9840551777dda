#include "tests/mutation/mutation_edits.h"

#include "proto/op_role.h"

namespace weft::testing {

pb::ProgramDesc& ProgramOf(ProgramDescs* programs, const Place& place) {
  return place.is_startup ? programs->startup : programs->main;
}
const pb::ProgramDesc& ProgramOf(const ProgramDescs& programs, const Place& place) {
  return place.is_startup ? programs.startup : programs.main;
}
Ops* OpsOf(ProgramDescs* programs, const Place& place) {
  return ProgramOf(programs, place).mutable_blocks(place.block)->mutable_ops();
}
const Ops& OpsOf(const ProgramDescs& programs, const Place& place) {
  return ProgramOf(programs, place).blocks(place.block).ops();
}
pb::OpDesc* OpOf(ProgramDescs* programs, const Place& place) {
  return OpsOf(programs, place)->Mutable(place.op);
}

void Move(Ops* ops, int from, int to) {
  for (; from < to; ++from) ops->SwapElements(from, from + 1);
  for (; from > to; --from) ops->SwapElements(from, from - 1);
}

void Erase(Ops* ops, int index) { ops->DeleteSubrange(index, 1); }

void Insert(Ops* ops, int index, const pb::OpDesc& op) {
  *ops->Add() = op;
  Move(ops, ops->size() - 1, index);
}

std::set<std::string> NamesOf(const pb::OpDesc& op) {
  std::set<std::string> names;
  for (const auto* slots : {&op.inputs(), &op.outputs()}) {
    for (const pb::OpDesc::Var& slot : *slots) {
      names.insert(slot.arguments().begin(), slot.arguments().end());
    }
  }
  return names;
}

bool ShareNames(const pb::OpDesc& a, const pb::OpDesc& b) {
  const std::set<std::string> names = NamesOf(a);
  for (const std::string& name : NamesOf(b)) {
    if (names.count(name) > 0) return true;
  }
  return false;
}

// In all slots of both sides.
void Rename(const std::string& from, const std::string& to, pb::OpDesc* op) {
  for (auto* slots : {op->mutable_inputs(), op->mutable_outputs()}) {
    for (pb::OpDesc::Var& slot : *slots) {
      for (std::string& arg : *slot.mutable_arguments()) {
        if (arg == from) arg = to;
      }
    }
  }
}

int RingOf(const pb::OpDesc& op) { return static_cast<int>(NumberOf(op, "ring_id")); }

int RoleOf(const pb::OpDesc& op) {
  const pb::OpDesc::Attr* role = FindAttr(op, kOpRoleAttr);
  return role == nullptr ? kRoleForward : role->i();
}

bool IsUpdate(const pb::OpDesc& op) {
  return !ArgsOf(op.inputs(), "Param").empty() && !ArgsOf(op.inputs(), "Grad").empty() &&
         !ArgsOf(op.outputs(), "ParamOut").empty();
}

// Declares `name` like `like`.
void Declare(const std::string& name, const std::string& like, const Place& place,
             ProgramDescs* programs) {
  pb::ProgramDesc& program = ProgramOf(programs, place);
  const pb::VarDesc* found = FindVar(program, place.block, like);
  pb::VarDesc var = *found;
  var.set_name(name);
  var.set_persistable(false);
  var.set_is_parameter(false);
  *program.mutable_blocks(place.block)->add_vars() = var;
}

}  // namespace weft::testing
