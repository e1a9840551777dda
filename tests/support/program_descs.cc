#include "tests/support/program_descs.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::testing {

using Slots = google::protobuf::RepeatedPtrField<pb::OpDesc::Var>;

const pb::OpDesc::Attr* FindAttr(const pb::OpDesc& op, absl::string_view name) {
  for (const pb::OpDesc::Attr& attr : op.attrs()) {
    if (attr.name() == name) return &attr;
  }
  return nullptr;
}

double NumberOf(const pb::OpDesc& op, absl::string_view name) {
  const pb::OpDesc::Attr* attr = FindAttr(op, name);
  if (attr == nullptr) return 0;
  switch (attr->type()) {
    case pb::INT:
      return attr->i();
    case pb::LONG:
      return static_cast<double>(attr->l());
    case pb::FLOAT:
      return attr->f();
    case pb::FLOAT64:
      return attr->float64();
    case pb::BOOLEAN:
      return attr->b() ? 1 : 0;
    default:
      return 0;
  }
}

namespace {

pb::OpDesc::Attr* AddOrFindAttr(pb::OpDesc* op, absl::string_view name, pb::AttrType type) {
  for (pb::OpDesc::Attr& attr : *op->mutable_attrs()) {
    if (attr.name() != name) continue;
    attr.Clear();
    attr.set_name(std::string(name));
    attr.set_type(type);
    return &attr;
  }
  pb::OpDesc::Attr* attr = op->add_attrs();
  attr->set_name(std::string(name));
  attr->set_type(type);
  return attr;
}

}  // namespace

void SetInt(pb::OpDesc* op, absl::string_view name, int value) {
  AddOrFindAttr(op, name, pb::INT)->set_i(value);
}

void SetFloat(pb::OpDesc* op, absl::string_view name, float value) {
  AddOrFindAttr(op, name, pb::FLOAT)->set_f(value);
}

std::vector<std::string> ArgsOf(const Slots& slots, absl::string_view slot) {
  for (const pb::OpDesc::Var& one : slots) {
    if (one.parameter() == slot) return {one.arguments().begin(), one.arguments().end()};
  }
  return {};
}

void SetArgs(const std::vector<std::string>& args, const std::string& slot, Slots* slots) {
  pb::OpDesc::Var* found = nullptr;
  for (pb::OpDesc::Var& one : *slots) {
    if (one.parameter() == slot) found = &one;
  }
  if (found == nullptr) {
    found = slots->Add();
    found->set_parameter(slot);
  }
  found->clear_arguments();
  for (const std::string& arg : args) found->add_arguments(arg);
}

int SubBlockOf(const pb::OpDesc& op) {
  for (const pb::OpDesc::Attr& attr : op.attrs()) {
    if (attr.type() == pb::BLOCK) return attr.block_idx();
  }
  return -1;
}

const pb::VarDesc* FindVar(const pb::ProgramDesc& program, int block, absl::string_view name) {
  for (int b = block; b >= 0; b = program.blocks(b).parent_idx()) {
    for (const pb::VarDesc& var : program.blocks(b).vars()) {
      if (var.name() == name) return &var;
    }
  }
  return nullptr;
}

pb::VarDesc* FindVar(pb::ProgramDesc* program, int block, absl::string_view name) {
  for (int b = block; b >= 0; b = program->blocks(b).parent_idx()) {
    for (pb::VarDesc& var : *program->mutable_blocks(b)->mutable_vars()) {
      if (var.name() == name) return &var;
    }
  }
  return nullptr;
}

const pb::VarType::TensorDesc* TensorOf(const pb::VarDesc& var) {
  if (var.type().has_lod_tensor()) return &var.type().lod_tensor().tensor();
  if (var.type().has_selected_rows()) return &var.type().selected_rows();
  return nullptr;
}

pb::VarType::TensorDesc* MutableTensorOf(pb::VarDesc* var) {
  if (var->type().has_lod_tensor())
    return var->mutable_type()->mutable_lod_tensor()->mutable_tensor();
  if (var->type().has_selected_rows()) return var->mutable_type()->mutable_selected_rows();
  return nullptr;
}

std::string TypeText(const pb::VarDesc& var) {
  const pb::VarType::TensorDesc* tensor = TensorOf(var);
  if (tensor == nullptr) return "";
  return absl::StrCat(var.type().has_selected_rows() ? "rows " : "",
                      pb::VarType::Type_Name(tensor->data_type()), "[",
                      absl::StrJoin(tensor->dims(), ", "), "]");
}

}  // namespace weft::testing
