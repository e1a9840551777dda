#include "ops/schema/infer_context.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/op_role.h"

namespace weft {
namespace {

const OpLayout::Slot* FindSlot(const Op& op, const std::vector<OpLayout::Slot>& slots,
                               absl::string_view name) {
  for (const OpLayout::Slot& slot : slots) {
    if (op.program().name(slot.name) == name) return &slot;
  }
  return nullptr;
}

}  // namespace

InferContext::InferContext(const Op& op, const OpSchema& schema, const OpAttrs& attrs,
                           const TypeLookup& lookup)
    : op_(op), schema_(schema), attrs_(attrs), outputs_(op.output_args().size()) {
  inputs_.reserve(op.input_args().size());
  for (Symbol arg : op.input_args()) {
    const bool is_variable = op.program().name(arg) != kEmptyVarName;
    inputs_.push_back(is_variable ? lookup(arg) : absl::nullopt);
  }
}

size_t InferContext::NumInputs(absl::string_view slot) const {
  const OpLayout::Slot* found = FindSlot(op_, op_.layout().inputs, slot);
  return found == nullptr ? 0 : found->count;
}

size_t InferContext::NumOutputs(absl::string_view slot) const {
  const OpLayout::Slot* found = FindSlot(op_, op_.layout().outputs, slot);
  return found == nullptr ? 0 : found->count;
}

const TensorType* InferContext::Input(absl::string_view slot, size_t i) const {
  const OpLayout::Slot* found = FindSlot(op_, op_.layout().inputs, slot);
  if (found == nullptr || i >= found->count) return nullptr;
  const absl::optional<TensorType>& type = inputs_[found->first + i];
  return type.has_value() ? &*type : nullptr;
}

void InferContext::SetOutput(absl::string_view slot, size_t i, TensorType type) {
  const OpLayout::Slot* found = FindSlot(op_, op_.layout().outputs, slot);
  if (found == nullptr || i >= found->count) return;
  outputs_[found->first - op_.layout().num_input_args + i] = std::move(type);
}

const TensorType* InferContext::Output(absl::string_view slot, size_t i) const {
  const OpLayout::Slot* found = FindSlot(op_, op_.layout().outputs, slot);
  if (found == nullptr || i >= found->count) return nullptr;
  const absl::optional<TensorType>& type = outputs_[found->first - op_.layout().num_input_args + i];
  return type.has_value() ? &*type : nullptr;
}

absl::Status InferContext::InputError(absl::string_view slot, size_t i,
                                      absl::string_view expected) const {
  const absl::Span<const Symbol> args = op_.Input(slot);
  const std::string variable =
      i < args.size() ? absl::StrCat(" (", op_.program().name(args[i]), ")") : "";
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
