#include "transpiler/passes/support/op_builder.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "absl/algorithm/container.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_attrs.h"
#include "proto/op_role.h"

namespace weft {
namespace {

using SlotMessages = google::protobuf::RepeatedPtrField<pb::OpDesc::Var>;

[[noreturn]] void Die(const std::string& type, const std::string& what) {
  std::fprintf(stderr, "BuildOp: %s has no %s\n", type.c_str(), what.c_str());
  std::abort();
}

// What to do with slots that are not given.
enum class Unused { kLeftOut, kOptionalLeftOut, kWrittenEmpty };

void WriteSlots(const std::string& type, const NewSlots& given,
                const std::vector<SlotSchema>& schema, Unused unused, SlotMessages* out) {
  std::map<std::string, std::vector<std::string>> slots;
  for (const SlotSchema& slot : schema) {
    if (unused == Unused::kLeftOut) break;
    if (slot.since == kPaddle3 || slot.until != 0) continue;
    if (unused == Unused::kWrittenEmpty || !slot.optional) slots[slot.name];
  }
  for (const auto& [name, args] : given) {
    const bool is_known =
        absl::c_any_of(schema, [name = name](const SlotSchema& slot) { return slot.name == name; });
    if (!is_known) Die(type, "slot " + name);
    slots[name] = args;
  }
  for (const auto& [name, args] : slots) {
    auto* slot = out->Add();
    slot->set_parameter(name);
    for (const std::string& arg : args) slot->add_arguments(arg);
  }
}

void SetVariables(const std::string& type, absl::string_view slot,
                  absl::Span<const std::string> variables, SlotMessages* slots) {
  for (auto& candidate : *slots) {
    if (candidate.parameter() != slot) continue;
    candidate.clear_arguments();
    for (const std::string& variable : variables) candidate.add_arguments(variable);
    return;
  }
  Die(type, "slot " + std::string(slot));
}

// Whether Paddle's op lacks an attribute of the schema.
bool IsOfWeft(absl::string_view type, absl::string_view attr) {
  return type == "adam" && attr == "use_nesterov";
}

// Paddle writes attributes that only control its back ends before all others.
constexpr char kMkldnnSwitch[] = "use_mkldnn";

}  // namespace

NewOp InPlaceOp(const std::string& type, const std::vector<std::string>& variables, NewAttrs attrs,
                int role, absl::optional<int> nranks) {
  return {type, {{"X", variables}}, {{"Out", variables}}, std::move(attrs), role, nranks};
}

NewOp FillOp(const std::string& out, DType dtype, const Dims& dims, double value, int role) {
  return {"fill_constant",
          {},
          {{"Out", {out}}},
          {{"dtype", static_cast<int>(dtype)},
           {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
           {"value", static_cast<float>(value)}},
          role};
}

NewOp CastOp(const std::string& x, DType from, const std::string& out, DType to, int role) {
  return {"cast",
          {{"X", {x}}},
          {{"Out", {out}}},
          {{"in_dtype", static_cast<int>(from)}, {"out_dtype", static_cast<int>(to)}},
          role};
}

NewOp ScaleOp(const std::string& x, const std::string& out, double factor, int role) {
  return {"scale", {{"X", {x}}}, {{"Out", {out}}}, {{"scale", static_cast<float>(factor)}}, role};
}

NewOp BinaryOp(const std::string& type, const std::string& x, const std::string& y,
               const std::string& out, int role) {
  return {type, {{"X", {x}}, {"Y", {y}}}, {{"Out", {out}}}, {}, role};
}

void SetRingOfGroup(int ring, const std::vector<int>& ranks, pb::OpDesc* op) {
  auto* const attrs = op->mutable_attrs();
  const auto ring_id = absl::c_find_if(
      *attrs, [](const pb::OpDesc::Attr& attr) { return attr.name() == "ring_id"; });
  if (ring_id == attrs->end()) Die(op->type(), "attribute ring_id");
  ring_id->set_i(ring);
  *attrs->Add() = MakeAttr(kGroupRanksAttr, std::vector<int32_t>(ranks.begin(), ranks.end()));
  const auto is_later = [](const pb::OpDesc::Attr& attr) { return attr.name() > kGroupRanksAttr; };
  std::rotate(absl::c_find_if(*attrs, is_later), attrs->end() - 1, attrs->end());
}

pb::OpDesc BuildOp(const NewOp& op, Dialect dialect) {
  const OpSchema* schema = FindOpSchema(op.type);
  if (schema == nullptr) Die(op.type, "schema");

  std::map<std::string, AttrValue> attrs;
  if (dialect == Dialect::kPaddle) {
    for (const AttrSchema& attr : schema->attrs()) {
      if (attr.since == kPaddle3 || IsOfWeft(op.type, attr.name)) continue;
      attrs[attr.name] = attr.default_value;
    }
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
    const auto is_attr = [&](const auto& named) { return named.first == attr.name; };
    if (!attr.required || absl::c_any_of(op.attrs, is_attr)) continue;
    Die(op.type, "value for attribute " + attr.name);
  }
  if (op.nranks.has_value() && dialect == Dialect::kWeft) {
    attrs[std::string(kNumRanksAttr)] = static_cast<int32_t>(*op.nranks);
  }
  if (!op.group_ranks.empty() && dialect == Dialect::kWeft) {
    attrs[std::string(kGroupRanksAttr)] =
        std::vector<int32_t>(op.group_ranks.begin(), op.group_ranks.end());
  }
  for (const auto& [name, value] : op.weft_attrs) attrs[name] = value;
  attrs[std::string(kOpRoleAttr)] = static_cast<int32_t>(op.role);

  pb::OpDesc desc;
  const bool is_paddle = dialect == Dialect::kPaddle;
  WriteSlots(op.type, op.inputs, schema->inputs(),
             is_paddle ? Unused::kWrittenEmpty : Unused::kLeftOut, desc.mutable_inputs());
  WriteSlots(op.type, op.outputs, schema->outputs(),
             is_paddle ? Unused::kOptionalLeftOut : Unused::kLeftOut, desc.mutable_outputs());
  desc.set_type(op.type);
  if (const auto it = attrs.find(kMkldnnSwitch); it != attrs.end()) {
    *desc.add_attrs() = MakeAttr(it->first, it->second);
    attrs.erase(it);
  }
  for (const auto& [name, value] : attrs) *desc.add_attrs() = MakeAttr(name, value);
  return desc;
}

OpTemplate& OpTemplate::In(absl::string_view slot, absl::Span<const std::string> variables) {
  SetVariables(op_.type(), slot, variables, op_.mutable_inputs());
  return *this;
}

OpTemplate& OpTemplate::Out(absl::string_view slot, absl::Span<const std::string> variables) {
  SetVariables(op_.type(), slot, variables, op_.mutable_outputs());
  return *this;
}

}  // namespace weft
