#include "proto/formats/pir/dataflow.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/formats/pir/attributes.h"
#include "proto/formats/pir/op_table.h"

namespace weft::pir {

uint32_t MakerOf(const Document& document, ValueIndex value) {
  return value == kNoValue ? kNoOp : document.value(value).op;
}

absl::string_view MakerName(const Document& document, ValueIndex value) {
  const uint32_t maker = MakerOf(document, value);
  return maker == kNoOp ? "" : document.op(maker).name;
}

ValueIndex OperandOf(const Document& document, uint32_t op, size_t operand) {
  const auto all = document.operands(document.op(op));
  return operand < all.size() ? all[operand].value : kNoValue;
}

bool ReadsAny(const Document& document, uint32_t op, const std::vector<bool>& values) {
  const uint32_t end = document.op(op).num_blocks == 0 ? op + 1 : document.EndOf(op);
  for (uint32_t k = op; k < end; ++k) {
    for (const Operand& operand : document.operands(document.op(k))) {
      if (operand.value != kNoValue && values[operand.value]) return true;
    }
  }
  return false;
}

std::vector<bool> NeededFor(const Document& document, const std::vector<ValueIndex>& values) {
  std::vector<bool> needed(document.values().size(), false);
  for (const ValueIndex value : values) {
    if (value != kNoValue) needed[value] = true;
  }
  for (uint32_t i = document.ops().size(); i-- > 0;) {
    const DocumentOp& op = document.op(i);
    bool is_needed = false;
    for (uint32_t r = 0; r < op.num_results; ++r) is_needed |= needed[op.first_result + r];
    if (!is_needed || IsUpdate(document, i)) continue;
    // With what its blocks read: these come after it.
    const uint32_t end = op.num_blocks == 0 ? i + 1 : document.EndOf(i);
    for (uint32_t k = i; k < end; ++k) {
      for (const Operand& operand : document.operands(document.op(k))) {
        if (operand.value != kNoValue) needed[operand.value] = true;
      }
    }
  }
  return needed;
}

ValueIndex ParameterOf(const Document& document, ValueIndex value) {
  constexpr int kMaxWrites = 4;
  for (int i = 0; i <= kMaxWrites; ++i) {
    const uint32_t maker = MakerOf(document, value);
    if (maker == kNoOp) return kNoValue;
    const DocumentOp& op = document.op(maker);
    if (op.name == "p") return value;
    const OpRule* const rule = FindRule(op.name);
    const uint32_t result = value - op.first_result;
    if (rule == nullptr || result >= rule->results.size()) return kNoValue;
    const int operand = rule->results[result].in_place_of;
    if (operand < 0) return kNoValue;
    value = OperandOf(document, maker, operand);
  }
  return kNoValue;
}

std::vector<ValueIndex> ElementsOf(const Document& document, ValueIndex value) {
  if (MakerName(document, value) != kCombineOp) return {value};
  std::vector<ValueIndex> elements;
  for (const Operand& element : document.operands(document.op(MakerOf(document, value)))) {
    elements.push_back(element.value);
  }
  return elements;
}

bool IsUpdate(const Document& document, uint32_t op) {
  const absl::string_view name = document.op(op).name;
  if (!IsInPlace(name)) return false;
  ValueIndex first = OperandOf(document, op, 0);
  if (MakerName(document, first) == kCombineOp) {
    first = OperandOf(document, MakerOf(document, first), 0);
  }
  if (ParameterOf(document, first) == kNoValue) return false;
  const OpRule* const rule = FindRule(name);
  return rule != nullptr && rule->FindOperand("grad") >= 0;
}

absl::StatusOr<bool> StopsGradient(const Document& document, ValueIndex value) {
  const uint32_t maker = MakerOf(document, value);
  if (maker == kNoOp) return false;
  const DocumentOp& op = document.op(maker);
  if (op.name == "p") {
    WEFT_ASSIGN_OR_RETURN(const Parameter parameter, ReadParameter(op));
    return parameter.stop_gradient;
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes, ReadAttributes(op.result_attrs));
  const Attribute* const attribute = FindAttribute("stop_gradient", attributes);
  if (attribute == nullptr) return false;
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> flags, FlagsOf(*attribute));
  const uint32_t result = value - op.first_result;
  return result < flags.size() && flags[result];
}

bool IsZeros(const Document& document, ValueIndex value) {
  if (MakerName(document, value) != "1.full_like") return false;
  const ValueIndex number = OperandOf(document, MakerOf(document, value), 1);
  if (MakerName(document, number) != "1.full") return false;
  const absl::StatusOr<double> constant = ConstantOf(document, number);
  return constant.ok() && *constant == 0;
}

absl::StatusOr<double> ConstantOf(const Document& document, ValueIndex value) {
  const uint32_t maker = document.value(value).op;
  if (maker == kNoOp || document.op(maker).name != "1.full") {
    return absl::InvalidArgumentError(
        absl::StrCat("%", document.value(value).id, ": expected a constant (1.full), found ",
                     maker == kNoOp ? "an argument of a block" : document.DebugName(maker)));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes,
                        ReadAttributes(document.op(maker).attrs));
  const Attribute* const attribute = FindAttribute("value", attributes);
  if (attribute == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(document.DebugName(maker), ": expected an attribute value, found none"));
  }
  return DoubleOf(*attribute);
}

}  // namespace weft::pir
