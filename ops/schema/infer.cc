#include "ops/schema/infer.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/check_slots.h"
#include "ops/schema/op_attrs.h"

namespace weft {
namespace {

// An output that is the same variable as an input has its type.
void SetInPlaceOutputs(InferContext& context) {
  for (const SlotSchema& slot : context.schema().outputs()) {
    if (slot.in_place_of.empty()) continue;
    for (size_t i = 0; i < context.NumOutputs(slot.name); ++i) {
      const TensorType* type = context.Input(slot.in_place_of, i);
      if (type != nullptr) context.SetOutput(slot.name, i, *type);
    }
  }
}

}  // namespace

absl::Status RunInference(InferContext& context) {
  SetInPlaceOutputs(context);
  const OpSchema::InferFn& infer = context.schema().infer();
  return infer == nullptr ? absl::OkStatus() : infer(context);
}

absl::StatusOr<std::vector<absl::optional<TensorType>>> InferOutputs(const Op& op,
                                                                     const TypeLookup& lookup) {
  const OpSchema* schema = FindOpSchema(op.type());
  if (schema == nullptr) {
    return std::vector<absl::optional<TensorType>>(op.output_args().size());
  }
  WEFT_RETURN_IF_ERROR(CheckSlots(op, *schema));
  WEFT_ASSIGN_OR_RETURN(const OpAttrs attrs, OpAttrs::Decode(op, *schema));
  InferContext context(op, *schema, attrs, lookup);
  const absl::Status status = RunInference(context);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(op.DebugName(), " ", status.message()));
  }
  return context.TakeOutputs();
}

absl::Status CheckNoUnknownSlots(const Op& op, const OpSchema& schema) {
  for (const OpSignature::Slot& slot : op.signature().inputs) {
    const absl::string_view name = op.program().name(slot.name);
    if (slot.count == 0 || schema.FindInput(name) != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(op.DebugName(), " input ", name, ": unknown slot"));
  }
  for (const OpSignature::Slot& slot : op.signature().outputs) {
    const absl::string_view name = op.program().name(slot.name);
    if (slot.count == 0 || schema.FindOutput(name) != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(op.DebugName(), " output ", name, ": unknown slot"));
  }
  return absl::OkStatus();
}

}  // namespace weft
