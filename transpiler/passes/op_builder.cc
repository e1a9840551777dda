#include "transpiler/passes/op_builder.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "ops/schema/op_attrs.h"
#include "proto/op_role.h"

namespace weft {
namespace {

using SlotMap = std::map<std::string, std::vector<std::string>>;

[[noreturn]] void Die(const std::string& type, const std::string& what) {
  std::fprintf(stderr, "BuildOp: %s has no %s\n", type.c_str(), what.c_str());
  std::abort();
}

// What becomes of slots that are not given.
enum class Unused { kLeftOut, kOptionalLeftOut, kWrittenEmpty };

SlotMap Slots(const NewOp& op,
              const std::vector<std::pair<std::string, std::vector<std::string>>>& given,
              const std::vector<SlotSchema>& schema, Unused unused) {
  SlotMap slots;
  for (const SlotSchema& slot : schema) {
    if (unused == Unused::kLeftOut) break;
    if (unused == Unused::kWrittenEmpty || !slot.optional) slots[slot.name];
  }
  for (const auto& [name, args] : given) {
    bool known = false;
    for (const SlotSchema& slot : schema) known |= slot.name == name;
    if (!known) Die(op.type, "slot " + name);
    slots[name] = args;
  }
  return slots;
}

void Write(const SlotMap& slots,
           google::protobuf::RepeatedPtrField<paddle::framework::proto::OpDesc::Var>* out) {
  for (const auto& [name, args] : slots) {
    auto* slot = out->Add();
    slot->set_parameter(name);
    for (const std::string& arg : args) slot->add_arguments(arg);
  }
}

void SetVariables(
    const paddle::framework::proto::OpDesc& op, absl::string_view slot,
    absl::Span<const std::string> variables,
    google::protobuf::RepeatedPtrField<paddle::framework::proto::OpDesc::Var>* slots) {
  for (auto& candidate : *slots) {
    if (candidate.parameter() != slot) continue;
    candidate.clear_arguments();
    for (const std::string& variable : variables) candidate.add_arguments(variable);
    return;
  }
  Die(op.type(), "slot " + std::string(slot));
}

// Paddle writes attributes that only steer its back ends before all others.
constexpr char kMkldnnSwitch[] = "use_mkldnn";

}  // namespace

paddle::framework::proto::OpDesc BuildOp(const NewOp& op, Dialect dialect) {
  const OpSchema* schema = FindOpSchema(op.type);
  if (schema == nullptr) Die(op.type, "schema");

  std::map<std::string, AttrValue> attrs;
  if (dialect == Dialect::kPaddle) {
    for (const AttrSchema& attr : schema->attrs()) attrs[attr.name] = attr.default_value;
    attrs["op_device"] = std::string();
    attrs["op_namescope"] = std::string("/");
    attrs["op_role_var"] = std::vector<std::string>();
    attrs["with_quant_attr"] = false;
  }
  for (const auto& [name, value] : op.attrs) {
    if (schema->FindAttr(name) == nullptr) Die(op.type, "attribute " + name);
    attrs[name] = value;
  }
  for (const AttrSchema& attr : schema->attrs()) {
    const auto given = [&](const auto& named) { return named.first == attr.name; };
    if (!attr.required || std::any_of(op.attrs.begin(), op.attrs.end(), given)) continue;
    Die(op.type, "value for attribute " + attr.name);
  }
  if (op.nranks.has_value() && dialect == Dialect::kWeft) {
    attrs[std::string(kNumRanksAttr)] = static_cast<int32_t>(*op.nranks);
  }
  attrs[std::string(kOpRoleAttr)] = static_cast<int32_t>(op.role);

  paddle::framework::proto::OpDesc desc;
  const bool paddle = dialect == Dialect::kPaddle;
  Write(Slots(op, op.inputs, schema->inputs(), paddle ? Unused::kWrittenEmpty : Unused::kLeftOut),
        desc.mutable_inputs());
  Write(Slots(op, op.outputs, schema->outputs(),
              paddle ? Unused::kOptionalLeftOut : Unused::kLeftOut),
        desc.mutable_outputs());
  desc.set_type(op.type);
  if (const auto it = attrs.find(kMkldnnSwitch); it != attrs.end()) {
    *desc.add_attrs() = MakeAttr(it->first, it->second);
    attrs.erase(it);
  }
  for (const auto& [name, value] : attrs) *desc.add_attrs() = MakeAttr(name, value);
  return desc;
}

OpTemplate& OpTemplate::In(absl::string_view slot, absl::Span<const std::string> variables) {
  SetVariables(op_, slot, variables, op_.mutable_inputs());
  return *this;
}

OpTemplate& OpTemplate::Out(absl::string_view slot, absl::Span<const std::string> variables) {
  SetVariables(op_, slot, variables, op_.mutable_outputs());
  return *this;
}

}  // namespace weft
