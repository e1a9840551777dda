#include "tests/properties/random_gradients.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"

namespace weft::testing {
namespace {

using Input = GradientOp::Input;

// The inputs of a slot that need a gradient, -1 in place of others; none if none does.
std::vector<int> Wanted(absl::Span<const RandomValue> values, const ForwardOp& op,
                        absl::string_view slot) {
  std::vector<int> wanted;
  bool is_any = false;
  for (int value : SlotOf(op.inputs, slot)) {
    is_any |= values[value].needs_gradient;
    wanted.push_back(values[value].needs_gradient ? value : -1);
  }
  return is_any ? wanted : std::vector<int>();
}

const AttrValues& GradientAttrs(const ForwardOp& op) {
  return op.gradient_attrs.has_value() ? *op.gradient_attrs : op.attrs;
}

std::vector<Input> GradientsOf(const std::vector<int>& values) {
  std::vector<Input> inputs;
  for (int value : values) inputs.push_back({value, true});
  return inputs;
}

// Linear ops, whose gradient is an op of another type: what that is, and its attributes.
struct LinearGradient {
  const char* of;
  const char* type;
  const char* attr;  // empty: none
};
constexpr LinearGradient kLinearGradients[] = {{"sum", "assign", ""},
                                               {"assign", "assign", ""},
                                               {"scale", "scale", "scale"},
                                               {"split", "concat", "axis"},
                                               {"flip", "flip", "axis"}};

const LinearGradient* FindLinearGradient(absl::string_view type) {
  for (const LinearGradient& gradient : kLinearGradients) {
    if (gradient.of == type) return &gradient;
  }
  return nullptr;
}

// One op for each input.
std::vector<GradientOp> OfLinear(absl::Span<const RandomValue> values, const ForwardOp& op,
                                 const LinearGradient& gradient) {
  std::vector<GradientOp> ops;
  AttrValues attrs;
  for (const auto& [name, value] : GradientAttrs(op)) {
    if (name == gradient.attr) attrs.emplace_back(name, value);
  }
  for (int value : Wanted(values, op, "X")) {
    if (value < 0) continue;
    const std::vector<Input> inputs = GradientsOf(SlotOf(op.outputs, "Out"));
    ops.push_back({gradient.type, {{"X", inputs}}, {{"Out", {value}}}, attrs});
  }
  return ops;
}

// As most gradient ops are: slots of the forward op, and of gradients.
GradientOp BySchema(absl::Span<const RandomValue> values, const ForwardOp& op,
                    const OpSchema& schema) {
  GradientOp gradient{schema.type(), {}, {}, {}};
  for (const SlotSchema& slot : schema.inputs()) {
    absl::string_view of = slot.name;
    const bool is_gradient = absl::ConsumeSuffix(&of, kGradSuffix);
    const std::vector<int> outputs = SlotOf(op.outputs, of);
    std::vector<Input> inputs;
    for (int value : is_gradient || !outputs.empty() ? outputs : SlotOf(op.inputs, of)) {
      inputs.push_back({value, is_gradient});
    }
    if (!inputs.empty()) gradient.inputs.push_back({slot.name, inputs});
  }
  for (const SlotSchema& slot : schema.outputs()) {
    absl::string_view of = slot.name;
    absl::ConsumeSuffix(&of, kGradSuffix);
    const std::vector<int> wanted = Wanted(values, op, of);
    if (!wanted.empty()) gradient.outputs.push_back({slot.name, wanted});
  }
  for (const auto& [name, value] : GradientAttrs(op)) {
    if (schema.FindAttr(name) != nullptr) gradient.attrs.emplace_back(name, value);
  }
  return gradient;
}

}  // namespace

std::vector<GradientOp> Differentiate(absl::Span<const RandomValue> values, const ForwardOp& op) {
  if (!op.block.empty()) return {};
  const LinearGradient* linear = FindLinearGradient(op.type);
  if (linear != nullptr) return OfLinear(values, op, *linear);
  const OpSchema* schema = FindOpSchema(op.type + "_grad");
  if (schema == nullptr) return {};
  GradientOp gradient = BySchema(values, op, *schema);
  if (gradient.outputs.empty()) return {};
  return {gradient};
}

bool HasGradient(const std::string& op_type, absl::string_view output_slot) {
  if (FindLinearGradient(op_type) != nullptr) return true;
  const OpSchema* schema = FindOpSchema(op_type + "_grad");
  return schema != nullptr && schema->FindInput(absl::StrCat(output_slot, kGradSuffix)) != nullptr;
}

}  // namespace weft::testing
