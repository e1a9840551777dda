#include "tests/mutation/block_mutations.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/op_role.h"
#include "tests/mutation/mutation_edits.h"

namespace weft::testing {
namespace {

constexpr char kStep[] = "mutant_step", kSecond[] = "mutant_second", kFirst[] = "mutant_is_first";
constexpr char kIsSparse[] = "is_sparse";

void AddAttr(pb::OpDesc* op, const std::string& name, pb::AttrType type, bool value, int block) {
  pb::OpDesc::Attr* const attr = op->add_attrs();
  attr->set_name(name);
  attr->set_type(type);
  if (type == pb::BLOCK) {
    attr->set_block_idx(block);
  } else {
    attr->set_b(value);
  }
}

pb::OpDesc Fill(const std::string& name, float value) {
  pb::OpDesc op;
  op.set_type("fill_constant");
  SetArgs({name}, "Out", op.mutable_outputs());
  pb::OpDesc::Attr* const shape = op.add_attrs();
  shape->set_name("shape");
  shape->set_type(pb::LONGS);
  shape->add_longs(1);
  SetInt(&op, "dtype", pb::VarType::FP32);
  SetFloat(&op, "value", value);
  SetInt(&op, kOpRoleAttr, kRoleForward);
  return op;
}

void DeclareScalar(const std::string& name, pb::VarType::Type dtype, bool persistable,
                   pb::ProgramDesc* program) {
  pb::VarDesc& var = *program->mutable_blocks(0)->add_vars();
  var.set_name(name);
  var.set_persistable(persistable);
  var.mutable_type()->set_type(pb::VarType::LOD_TENSOR);
  pb::VarType::TensorDesc& tensor = *var.mutable_type()->mutable_lod_tensor()->mutable_tensor();
  tensor.set_data_type(dtype);
  tensor.add_dims(1);
}

// A variable of the main program that is true in the first step. Returns how many ops compute it.
int AddFirst(ProgramDescs* programs) {
  for (pb::ProgramDesc* program : {&programs->main, &programs->startup}) {
    DeclareScalar(kStep, pb::VarType::FP32, /*persistable=*/true, program);
  }
  DeclareScalar(kSecond, pb::VarType::FP32, /*persistable=*/false, &programs->main);
  DeclareScalar(kFirst, pb::VarType::BOOL, /*persistable=*/false, &programs->main);
  *programs->startup.mutable_blocks(0)->add_ops() = Fill(kStep, 0);
  pb::OpDesc increment;
  increment.set_type("increment");
  SetArgs({kStep}, "X", increment.mutable_inputs());
  SetArgs({kStep}, "Out", increment.mutable_outputs());
  SetFloat(&increment, "step", 1);
  pb::OpDesc compare;
  compare.set_type("less_than");
  SetArgs({kStep}, "X", compare.mutable_inputs());
  SetArgs({kSecond}, "Y", compare.mutable_inputs());
  SetArgs({kFirst}, "Out", compare.mutable_outputs());
  int count = 0;
  for (const pb::OpDesc& op : {increment, Fill(kSecond, 2), compare}) {
    Insert(programs->main.mutable_blocks(0)->mutable_ops(), count++, op);
  }
  return count;
}

// Op `index` of the root block runs in the first step only.
void MoveIntoBranch(int index, ProgramDescs* programs) {
  index += AddFirst(programs);
  const int number = programs->main.blocks_size();
  pb::BlockDesc& block = *programs->main.add_blocks();
  block.set_idx(number);
  block.set_parent_idx(0);
  pb::OpDesc& op = *programs->main.mutable_blocks(0)->mutable_ops(index);
  *block.add_ops() = op;
  pb::OpDesc branch;
  branch.set_type("conditional_block");
  std::vector<std::string> in, out;
  for (const pb::OpDesc::Var& slot : op.inputs()) {
    in.insert(in.end(), slot.arguments().begin(), slot.arguments().end());
  }
  for (const pb::OpDesc::Var& slot : op.outputs()) {
    out.insert(out.end(), slot.arguments().begin(), slot.arguments().end());
  }
  SetArgs({kFirst}, "Cond", branch.mutable_inputs());
  SetArgs(in, "Input", branch.mutable_inputs());
  SetArgs(out, "Out", branch.mutable_outputs());
  SetArgs({}, "Scope", branch.mutable_outputs());
  AddAttr(&branch, "sub_block", pb::BLOCK, false, number);
  AddAttr(&branch, "is_scalar_condition", pb::BOOLEAN, true, 0);
  SetInt(&branch, kOpRoleAttr, RoleOf(op));
  op = branch;
}

// All gradients with rows become dense.
void MakeDense(ProgramDescs* programs) {
  for (pb::BlockDesc& block : *programs->main.mutable_blocks()) {
    for (pb::OpDesc& op : *block.mutable_ops()) {
      for (pb::OpDesc::Attr& attr : *op.mutable_attrs()) {
        if (attr.name() == kIsSparse) attr.set_b(false);
      }
    }
    for (pb::VarDesc& var : *block.mutable_vars()) {
      if (var.type().type() != pb::VarType::SELECTED_ROWS) continue;
      const pb::VarType::TensorDesc tensor = var.type().selected_rows();
      var.mutable_type()->clear_selected_rows();
      var.mutable_type()->set_type(pb::VarType::LOD_TENSOR);
      *var.mutable_type()->mutable_lod_tensor()->mutable_tensor() = tensor;
    }
  }
}

class Generator {
 public:
  explicit Generator(const ProgramDescs& programs) : programs_(programs) {}

  std::vector<Mutation> Run() {
    bool has_rows = false;
    for (int block = 0; block < programs_.main.blocks_size(); ++block) {
      for (int i = 0; i < programs_.main.blocks(block).ops_size(); ++i) {
        const pb::OpDesc& op = programs_.main.blocks(block).ops(i);
        const Place place{/*is_startup=*/false, block, i};
        has_rows = has_rows || NumberOf(op, kIsSparse) != 0;
        if (SubBlockOf(op) >= 0) {
          AddForBlock(place, op);
        } else if (block == 0 && op.outputs_size() > 0 && op.type() != "feed") {
          Add("branch: write moved into it", place, "",
              [i](ProgramDescs* p) { MoveIntoBranch(i, p); });
        }
      }
    }
    if (has_rows) Add("rows: is_sparse of all gradients", {}, "", MakeDense);
    return std::move(mutations_);
  }

 private:
  void Add(const std::string& kind, const Place& place, const std::string& detail,
           std::function<void(ProgramDescs*)> apply) {
    Mutation mutation;
    mutation.kind = kind;
    mutation.what = absl::StrCat("block ", place.block, " op ", place.op, " (",
                                 OpsOf(programs_, place).Get(place.op).type(), ") ", detail);
    mutation.apply = std::move(apply);
    mutations_.push_back(std::move(mutation));
  }

  void AddForBlock(const Place& place, const pb::OpDesc& op) {
    if (op.type() == "conditional_block" && place.block == 0) {
      const int block = SubBlockOf(op);
      for (int i = 0; i < programs_.main.blocks(block).ops_size(); ++i) {
        Add("branch: read moved out of it", place, absl::StrCat("its op ", i),
            [place, block, i](ProgramDescs* p) {
              Ops* const inner = p->main.mutable_blocks(block)->mutable_ops();
              const pb::OpDesc moved = inner->Get(i);
              Erase(inner, i);
              Insert(OpsOf(p, place), place.op + 1, moved);
            });
      }
    }
    for (const pb::OpDesc::Var& slot : op.outputs()) {
      if (absl::EndsWith(slot.parameter(), kGradSuffix)) AddForGradients(place, slot);
    }
    for (const auto* slots : {&op.inputs(), &op.outputs()}) {
      for (const pb::OpDesc::Var& slot : *slots) {
        const std::string name = slot.parameter();
        const bool is_gradient = absl::EndsWith(name, kGradSuffix);
        if (slot.arguments_size() < 2 || is_gradient) continue;
        Add("block: order of a slot", place, name, [place, name](ProgramDescs* p) {
          pb::OpDesc* const changed = OpOf(p, place);
          for (auto* changed_slots : {changed->mutable_inputs(), changed->mutable_outputs()}) {
            for (pb::OpDesc::Var& other : *changed_slots) {
              if (other.parameter() != name &&
                  (other.parameter() != absl::StrCat(name, kGradSuffix) || name == "Out")) {
                continue;
              }
              std::reverse(other.mutable_arguments()->begin(), other.mutable_arguments()->end());
            }
          }
        });
      }
    }
  }

  void AddForGradients(const Place& place, const pb::OpDesc::Var& slot) {
    const std::string name = slot.parameter();
    const std::vector<std::string> made(slot.arguments().begin(), slot.arguments().end());
    const auto add = [&](const std::string& kind, size_t i, std::vector<std::string> args) {
      Add(kind, place, absl::StrCat(name, " ", i), [place, name, args](ProgramDescs* p) {
        SetArgs(args, name, OpOf(p, place)->mutable_outputs());
      });
    };
    for (size_t i = 0; i < made.size(); ++i) {
      if (made[i] == kEmptyVarName) continue;
      std::vector<std::string> args = made;
      for (size_t j = i + 1; j < made.size(); ++j) {
        if (made[j] == kEmptyVarName) continue;
        std::swap(args[i], args[j]);
        add("block: outputs swapped", i, args);
        args = made;
      }
      for (const pb::VarDesc& var : programs_.main.blocks(0).vars()) {
        const bool is_other = absl::EndsWith(var.name(), kGradSuffix) &&
                              std::find(made.begin(), made.end(), var.name()) == made.end();
        if (!is_other) continue;
        args[i] = var.name();
        add("block: output renamed", i, args);
        break;
      }
    }
  }

  const ProgramDescs& programs_;
  std::vector<Mutation> mutations_;
};

}  // namespace

std::vector<Mutation> BlockMutations(const ProgramDescs& program) {
  return Generator(program).Run();
}

}  // namespace weft::testing
