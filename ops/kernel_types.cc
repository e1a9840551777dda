#include "ops/kernel_types.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "ops/kernel_util.h"
#include "ops/schema/infer.h"

namespace weft {
namespace {

void AddSlot(const std::string& name,
             const absl::flat_hash_map<std::string, KernelSpec::Slot>& slots,
             InferContext::Slots* to) {
  const auto it = slots.find(name);
  if (it == slots.end() || it->second.count == 0) return;
  to->push_back(
      {name, static_cast<size_t>(it->second.first), static_cast<size_t>(it->second.count)});
}

}  // namespace

KernelTypes::KernelTypes(const KernelSpec& spec) : schema_(*spec.schema), attrs_(spec.attrs) {
  for (const SlotSchema& slot : schema_.inputs()) AddSlot(slot.name, spec.inputs, &input_slots_);
  for (const SlotSchema& slot : schema_.outputs()) {
    AddSlot(slot.name, spec.outputs, &output_slots_);
  }
}

absl::StatusOr<KernelTypes::Types> KernelTypes::Infer(const Types& inputs,
                                                      absl::Span<Tensor* const> outputs) const {
  InferContext context(schema_, attrs_, input_slots_, inputs, output_slots_, outputs.size());
  if (one_float_type_) WEFT_RETURN_IF_ERROR(CheckOneFloatType(context, inputs));
  WEFT_RETURN_IF_ERROR(RunInference(context));
  WEFT_RETURN_IF_ERROR(CheckArguments(inputs, outputs));
  return context.TakeOutputs();
}

bool KernelTypes::TakesHalves(const Types& inputs) const {
  const auto all_are = [&](DType half) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].has_value()) continue;
      const bool takes = absl::c_linear_search(half_inputs_, static_cast<int>(i));
      if (takes ? inputs[i]->dtype != half : IsHalf(inputs[i]->dtype)) return false;
    }
    return true;
  };
  return !half_inputs_.empty() &&
         (all_are(DType::kBFloat16) || (takes_float16_ && all_are(DType::kFloat16)));
}

std::string KernelTypes::SlotOf(const KernelContext& ctx, const Tensor* argument) const {
  const auto find = [&](const char* direction, const InferContext::Slots& slots,
                        const auto& tensors) -> std::string {
    for (const InferContext::Slot& slot : slots) {
      if (absl::c_linear_search(tensors.subspan(slot.first, slot.count), argument)) {
        return absl::StrCat(direction, slot.name);
      }
    }
    return "";
  };
  std::string slot = find("input ", input_slots_, ctx.inputs);
  if (slot.empty()) slot = find("output ", output_slots_, ctx.outputs);
  return slot.empty() ? "a tensor" : slot;
}

absl::Status KernelTypes::CheckOneFloatType(const InferContext& context,
                                            const Types& inputs) const {
  const auto arithmetic = [](DType type) { return IsHalf(type) ? DType::kFloat32 : type; };
  absl::optional<DType> first;
  for (const InferContext::Slot& slot : input_slots_) {
    for (size_t i = 0; i < slot.count; ++i) {
      const absl::optional<TensorType>& type = inputs[slot.first + i];
      if (!type.has_value() || !IsFloating(type->dtype)) continue;
      if (!first.has_value()) first = arithmetic(type->dtype);
      if (*first != arithmetic(type->dtype)) {
        return context.InputError(slot.name, i,
                                  absl::StrCat(DTypeName(*first), " as the other inputs"));
      }
    }
  }
  return absl::OkStatus();
}

// Checks that every argument of an input has a variable, that a gradient slot has as many arguments
// as its forward slot, and that an in-place output has as many variables as its input.
absl::Status KernelTypes::CheckArguments(const Types& inputs,
                                         absl::Span<Tensor* const> outputs) const {
  for (const InferContext::Slot& slot : input_slots_) {
    if (absl::c_linear_search(may_miss_, static_cast<int>(slot.first))) continue;
    for (size_t i = 0; i < slot.count; ++i) {
      if (inputs[slot.first + i].has_value()) continue;
      return absl::InvalidArgumentError(absl::StrCat("input ", slot.name, ": expected ", slot.count,
                                                     " variables, found none for ", i));
    }
  }
  for (const InferContext::Slot& slot : output_slots_) {
    const std::string& same = schema_.FindOutput(slot.name)->in_place_of;
    const bool may_miss = same.empty();
    const absl::string_view input = may_miss ? absl::StripSuffix(slot.name, "@GRAD") : same;
    if (input == slot.name) continue;
    const auto its = std::find_if(input_slots_.begin(), input_slots_.end(),
                                  [&](const auto& other) { return other.name == input; });
    if (its == input_slots_.end()) continue;
    const auto of_slot = outputs.subspan(slot.first, slot.count);
    const size_t missing = std::count(of_slot.begin(), of_slot.end(), nullptr);
    if (slot.count == its->count && (may_miss || missing == 0)) continue;
    return absl::InvalidArgumentError(absl::StrCat("output ", slot.name, ": expected ", its->count,
                                                   " variables, as ", input, " has, found ",
                                                   slot.count - missing));
  }
  return absl::OkStatus();
}

}  // namespace weft
