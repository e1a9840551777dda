#include "ops/schema/infer_context.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

InferContext::Slots SlotsOf(const Op& op, const std::vector<OpSignature::Slot>& slots,
                            size_t first) {
  InferContext::Slots result;
  for (const OpSignature::Slot& slot : slots) {
    result.push_back({op.program().name(slot.name), slot.first - first, slot.count});
  }
  return result;
}

const InferContext::Slot* FindSlot(const InferContext::Slots& slots, absl::string_view name) {
  for (const InferContext::Slot& slot : slots) {
    if (slot.name == name) return &slot;
  }
  return nullptr;
}

// The type of variable i of a slot; nullptr if there is no such variable, or its type is unknown.
template <typename AnyTypes>
auto* TypeIn(const InferContext::Slots& slots, AnyTypes& types, absl::string_view name, size_t i) {
  const InferContext::Slot* slot = FindSlot(slots, name);
  const bool is_known = slot != nullptr && i < slot->count && types[slot->first + i].has_value();
  return is_known ? &*types[slot->first + i] : nullptr;
}

}  // namespace

InferContext::InferContext(const Op& op, const OpSchema& schema, const OpAttrs& attrs,
                           const TypeLookup& lookup)
    : op_(&op),
      schema_(schema),
      attrs_(attrs),
      input_slots_(SlotsOf(op, op.signature().inputs, 0)),
      output_slots_(SlotsOf(op, op.signature().outputs, op.signature().num_input_args)),
      outputs_(op.output_args().size()) {
  inputs_.reserve(op.input_args().size());
  for (Symbol arg : op.input_args()) {
    const bool is_variable = op.program().name(arg) != kEmptyVarName;
    inputs_.push_back(is_variable ? lookup(arg) : absl::nullopt);
  }
}

InferContext::InferContext(const OpSchema& schema, const OpAttrs& attrs, Slots input_slots,
                           Types inputs, Slots output_slots, size_t num_outputs)
    : schema_(schema),
      attrs_(attrs),
      input_slots_(std::move(input_slots)),
      output_slots_(std::move(output_slots)),
      inputs_(std::move(inputs)),
      outputs_(num_outputs) {}

size_t InferContext::NumInputs(absl::string_view slot) const {
  const Slot* found = FindSlot(input_slots_, slot);
  return found == nullptr ? 0 : found->count;
}

size_t InferContext::NumOutputs(absl::string_view slot) const {
  const Slot* found = FindSlot(output_slots_, slot);
  return found == nullptr ? 0 : found->count;
}

const TensorType* InferContext::Input(absl::string_view slot, size_t i) const {
  return TypeIn(input_slots_, inputs_, slot, i);
}

void InferContext::SetOutput(absl::string_view slot, size_t i, TensorType type) {
  const Slot* found = FindSlot(output_slots_, slot);
  if (found == nullptr || i >= found->count) return;
  const auto has_dims = [](const absl::optional<TensorType>& input) {
    return input.has_value() && !input->dims.empty();
  };
  if (type.dims.empty() && IsBefore(attrs_.version(), kPaddle2_5) &&
      absl::c_any_of(inputs_, has_dims)) {
    type.dims = {1};
  }
  outputs_[found->first + i] = std::move(type);
}

const TensorType* InferContext::Output(absl::string_view slot, size_t i) const {
  return TypeIn(output_slots_, outputs_, slot, i);
}

absl::Status InferContext::InputError(absl::string_view slot, size_t i,
                                      absl::string_view expected) const {
  std::string variable;
  if (op_ != nullptr && i < NumInputs(slot)) {
    variable = absl::StrCat(" (", op_->program().name(op_->Input(slot)[i]), ")");
  }
  const TensorType* type = Input(slot, i);
  return absl::InvalidArgumentError(absl::StrCat("input ", slot, variable, ": expected ", expected,
                                                 ", found ",
                                                 type == nullptr ? "no type" : ToString(*type)));
}

absl::Status InferContext::AttrError(absl::string_view name, absl::string_view expected,
                                     absl::string_view found) const {
  return absl::InvalidArgumentError(
      absl::StrCat("attribute ", name, ": expected ", expected, ", found ", found));
}

}  // namespace weft
