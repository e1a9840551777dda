#include "proto/testing/program_builder.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::testing {

ProgramBuilder::ProgramBuilder() {
  pb::BlockDesc* root = desc_.add_blocks();
  root->set_idx(0);
  root->set_parent_idx(-1);
  desc_.mutable_version()->set_version(2006002);
}

ProgramBuilder& ProgramBuilder::Var(const std::string& name, const std::vector<int64_t>& dims,
                                    pb::VarType::Type dtype) {
  last_var_ = block().add_vars();
  last_var_->set_name(name);
  last_var_->mutable_type()->set_type(pb::VarType::LOD_TENSOR);
  auto* tensor = last_var_->mutable_type()->mutable_lod_tensor()->mutable_tensor();
  tensor->set_data_type(dtype);
  for (int64_t dim : dims) tensor->add_dims(dim);
  return *this;
}

ProgramBuilder& ProgramBuilder::Param(const std::string& name, const std::vector<int64_t>& dims) {
  Var(name, dims);
  last_var_->set_persistable(true);
  last_var_->set_is_parameter(true);
  return *this;
}

ProgramBuilder& ProgramBuilder::Rows(const std::string& name, const std::vector<int64_t>& dims) {
  Var(name);
  pb::VarType* type = last_var_->mutable_type();
  type->Clear();
  type->set_type(pb::VarType::SELECTED_ROWS);
  type->mutable_selected_rows()->set_data_type(pb::VarType::FP32);
  for (int64_t dim : dims) type->mutable_selected_rows()->add_dims(dim);
  return *this;
}

ProgramBuilder& ProgramBuilder::Op(const std::string& type, const Slots& inputs,
                                   const Slots& outputs, int role) {
  last_op_ = block().add_ops();
  last_op_->set_type(type);
  Fill(inputs, last_op_->mutable_inputs());
  Fill(outputs, last_op_->mutable_outputs());
  return IntAttr(std::string(kOpRoleAttr), role);
}

ProgramBuilder& ProgramBuilder::Pairs(const std::vector<std::string>& names) {
  auto* attr = last_op_->add_attrs();
  attr->set_name(std::string(kOpRoleVarAttr));
  attr->set_type(pb::STRINGS);
  for (const std::string& name : names) {
    attr->add_strings(name);
    if (name != kEmptyVarName && !IsDeclared(name)) Var(name);
  }
  return *this;
}

ProgramBuilder& ProgramBuilder::IntAttr(const std::string& name, int value) {
  auto* attr = last_op_->add_attrs();
  attr->set_name(name);
  attr->set_type(pb::INT);
  attr->set_i(value);
  return *this;
}

ProgramBuilder& ProgramBuilder::FloatAttr(const std::string& name, float value) {
  auto* attr = last_op_->add_attrs();
  attr->set_name(name);
  attr->set_type(pb::FLOAT);
  attr->set_f(value);
  return *this;
}

ProgramBuilder& ProgramBuilder::BoolAttr(const std::string& name, bool value) {
  auto* attr = last_op_->add_attrs();
  attr->set_name(name);
  attr->set_type(pb::BOOLEAN);
  attr->set_b(value);
  return *this;
}

ProgramBuilder& ProgramBuilder::LongsAttr(const std::string& name,
                                          const std::vector<int64_t>& values) {
  auto* attr = last_op_->add_attrs();
  attr->set_name(name);
  attr->set_type(pb::LONGS);
  for (int64_t value : values) attr->add_longs(value);
  return *this;
}

ProgramBuilder& ProgramBuilder::BlockAttr(const std::string& name, int block) {
  auto* attr = last_op_->add_attrs();
  attr->set_name(name);
  attr->set_type(pb::BLOCK);
  attr->set_block_idx(block);
  return *this;
}

ProgramBuilder& ProgramBuilder::NewBlock(int parent) {
  block_ = desc_.blocks_size();
  pb::BlockDesc* added = desc_.add_blocks();
  added->set_idx(block_);
  added->set_parent_idx(parent);
  return *this;
}

ProgramBuilder& ProgramBuilder::InBlock(int block) {
  block_ = block;
  return *this;
}

Program ProgramBuilder::Build() const {
  absl::StatusOr<Program> program = Program::FromProto(desc_);
  if (!program.ok()) {
    std::fprintf(stderr, "ProgramBuilder: %s\n", program.status().ToString().c_str());
    std::abort();
  }
  return *std::move(program);
}

bool ProgramBuilder::IsDeclared(const std::string& name) const {
  for (int b = block_; b != -1; b = desc_.blocks(b).parent_idx()) {
    for (const pb::VarDesc& var : desc_.blocks(b).vars()) {
      if (var.name() == name) return true;
    }
  }
  return false;
}

void ProgramBuilder::Fill(const Slots& slots,
                          google::protobuf::RepeatedPtrField<pb::OpDesc::Var>* out) {
  for (const auto& [slot, args] : slots) {
    auto* added = out->Add();
    added->set_parameter(slot);
    for (const std::string& arg : args) {
      added->add_arguments(arg);
      if (arg != kEmptyVarName && !IsDeclared(arg)) Var(arg);
    }
  }
}

std::vector<std::string> OpTexts(const Program& program, int block) {
  const auto names = [&](absl::Span<const Symbol> symbols) {
    return absl::StrJoin(symbols, ", ", [&](std::string* out, Symbol symbol) {
      absl::StrAppend(out, program.name(symbol));
    });
  };
  std::vector<std::string> texts;
  for (OpId id : program.block(block).ops()) {
    const weft::Op op = program.op(id);
    const auto ring = op.FindAttr("ring_id");
    texts.push_back(absl::StrCat(op.type(), ring.has_value() ? absl::StrCat("@", ring->i()) : "",
                                 "(", names(op.input_args()), " -> ", names(op.output_args()),
                                 ")"));
  }
  return texts;
}

}  // namespace weft::testing
