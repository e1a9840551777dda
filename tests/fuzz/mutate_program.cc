// libFuzzer's changes, and changes of a program as a message: ops that are repeated, dropped and
// moved, variables that change places, other roles. Nearly all of the former give no program.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "proto/framework.pb.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

namespace pb = ::paddle::framework::proto;

class Mutator {
 public:
  Mutator(unsigned seed, pb::ProgramDesc* program) : random_(seed), program_(*program) {}

  void Mutate() {
    pb::BlockDesc& block = *program_.mutable_blocks(Below(program_.blocks_size()));
    if (block.ops_size() == 0) return;
    pb::OpDesc& op = *block.mutable_ops(Below(block.ops_size()));
    switch (Below(9)) {
      case 0:
        *block.add_ops() = pb::OpDesc(op);
        break;
      case 1:
        block.mutable_ops()->DeleteSubrange(Below(block.ops_size()), 1);
        break;
      case 2:
        block.mutable_ops()->SwapElements(Below(block.ops_size()), Below(block.ops_size()));
        break;
      case 3:
        if (std::string* name = AnyName(&op)) *name = OtherName(block);
        break;
      case 4:
        if (op.attrs_size() > 0) MutateAttr(op.mutable_attrs(Below(op.attrs_size())), block);
        break;
      case 5:
        if (op.attrs_size() > 0) op.mutable_attrs()->DeleteSubrange(Below(op.attrs_size()), 1);
        break;
      case 6:
        if (block.vars_size() > 0) MutateVar(block.mutable_vars(Below(block.vars_size())));
        break;
      case 7:
        op.set_type(block.ops(Below(block.ops_size())).type());
        break;
      default:
        AddBlock(&op);
    }
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  std::string* AnyName(pb::OpDesc* op) {
    std::vector<std::string*> names;
    for (auto* slots : {op->mutable_inputs(), op->mutable_outputs()}) {
      for (pb::OpDesc::Var& slot : *slots) {
        for (std::string& name : *slot.mutable_arguments()) names.push_back(&name);
      }
    }
    return names.empty() ? nullptr : names[Below(static_cast<int>(names.size()))];
  }

  std::string OtherName(const pb::BlockDesc& block) {
    const pb::BlockDesc& from = block.vars_size() > 0 ? block : program_.blocks(0);
    if (from.vars_size() == 0 || Below(10) == 0) return "@EMPTY@";
    return from.vars(Below(from.vars_size())).name();
  }

  void MutateAttr(pb::OpDesc::Attr* attr, const pb::BlockDesc& block) {
    if (attr->name() == "op_role") {
      static const int kRoles[] = {0, 1, 2, 16, 256, 257};
      attr->set_i(kRoles[Below(6)]);
    } else if (attr->strings_size() > 0) {
      if (Below(2) == 0) attr->add_strings(OtherName(block));
      attr->set_strings(Below(attr->strings_size()), OtherName(block));
    } else if (attr->has_block_idx()) {
      attr->set_block_idx(Below(program_.blocks_size() + 1));
    } else {
      attr->set_i(Below(5) - 1);
    }
  }

  void MutateVar(pb::VarDesc* var) {
    switch (Below(4)) {
      case 0:
        var->set_persistable(!var->persistable());
        break;
      case 1:
        var->set_is_parameter(!var->is_parameter());
        break;
      case 2:
        var->mutable_type()->set_type(Below(2) == 0 ? pb::VarType::LOD_TENSOR
                                                    : pb::VarType::SELECTED_ROWS);
        break;
      default: {
        auto* tensor = var->mutable_type()->mutable_lod_tensor()->mutable_tensor();
        tensor->set_data_type(static_cast<pb::VarType::Type>(Below(7)));
        if (Below(2) == 0) tensor->add_dims(Below(4) - 1);
      }
    }
  }

  // A block that the op runs, with a copy of it.
  void AddBlock(pb::OpDesc* op) {
    const int idx = program_.blocks_size();
    const pb::OpDesc copy = *op;
    pb::OpDesc::Attr* attr = op->add_attrs();
    attr->set_name("sub_block");
    attr->set_type(pb::BLOCK);
    attr->set_block_idx(idx);
    pb::BlockDesc* block = program_.add_blocks();
    block->set_idx(idx);
    block->set_parent_idx(Below(idx));
    *block->add_ops() = copy;
  }

  std::mt19937 random_;
  pb::ProgramDesc& program_;
};

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  static const google::protobuf::LogSilencer quiet;  // it warns of names that are not UTF-8
  pb::ProgramDesc program;
  if (seed % 4 == 0 || !program.ParsePartialFromArray(data, static_cast<int>(size)) ||
      program.blocks_size() == 0) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  Mutator mutator(seed, &program);
  for (unsigned n = 1 + seed / 4 % 4; n > 0; --n) mutator.Mutate();
  const std::string bytes = program.SerializePartialAsString();
  if (bytes.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}
