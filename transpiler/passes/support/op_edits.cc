#include "transpiler/passes/support/op_edits.h"

#include <algorithm>

#include "ops/schema/device_ops.h"
#include "ops/schema/op_attrs.h"

namespace weft {
namespace {

using Slots = google::protobuf::RepeatedPtrField<pb::OpDesc::Var>;

void SetSlot(Slots* slots, absl::string_view name, const std::vector<std::string>& variables) {
  pb::OpDesc::Var* slot = nullptr;
  for (pb::OpDesc::Var& existing : *slots) {
    if (existing.parameter() == name) slot = &existing;
  }
  if (slot == nullptr) {
    slot = slots->Add();
    slot->set_parameter(std::string(name));
  }
  slot->clear_arguments();
  for (const std::string& variable : variables) slot->add_arguments(variable);
}

pb::OpDesc::Attr* AttrNamed(pb::OpDesc* op, absl::string_view name, pb::AttrType type) {
  for (pb::OpDesc::Attr& attr : *op->mutable_attrs()) {
    if (attr.name() == name) return &attr;
  }
  pb::OpDesc::Attr* const attr = op->add_attrs();
  attr->set_name(std::string(name));
  attr->set_type(type);
  return attr;
}

}  // namespace

void SetInput(pb::OpDesc* op, absl::string_view slot, const std::vector<std::string>& variables) {
  SetSlot(op->mutable_inputs(), slot, variables);
}
void SetOutput(pb::OpDesc* op, absl::string_view slot, const std::vector<std::string>& variables) {
  SetSlot(op->mutable_outputs(), slot, variables);
}

void SetBoolAttr(pb::OpDesc* op, absl::string_view name, bool value) {
  AttrNamed(op, name, pb::BOOLEAN)->set_b(value);
}
void SetIntAttr(pb::OpDesc* op, absl::string_view name, int value) {
  AttrNamed(op, name, pb::INT)->set_i(value);
}
void SetFloatAttr(pb::OpDesc* op, absl::string_view name, float value) {
  AttrNamed(op, name, pb::FLOAT)->set_f(value);
}
void SetStringAttr(pb::OpDesc* op, absl::string_view name, absl::string_view value) {
  AttrNamed(op, name, pb::STRING)->set_s(std::string(value));
}
void SetStringsAttr(pb::OpDesc* op, absl::string_view name,
                    const std::vector<std::string>& values) {
  pb::OpDesc::Attr* const attr = AttrNamed(op, name, pb::STRINGS);
  attr->clear_strings();
  for (const std::string& value : values) attr->add_strings(value);
}

void AddAttr(absl::string_view name, const AttrValue& value, pb::OpDesc* op) {
  auto* const attrs = op->mutable_attrs();
  *attrs->Add() = MakeAttr(name, value);
  const auto is_later = [&](const pb::OpDesc::Attr& attr) { return attr.name() > name; };
  std::rotate(std::find_if(attrs->begin(), attrs->end() - 1, is_later), attrs->end() - 1,
              attrs->end());
}

void SetOnHost(pb::OpDesc* op) { SetStringAttr(op, kOpDeviceAttr, kHostDeviceName); }

}  // namespace weft
