#include "ops/schema/check_slots.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {
namespace {

absl::Status CheckSlot(const Op& op, absl::string_view kind, const SlotSchema& slot, size_t count,
                       bool required) {
  if (count == 0 && required) {
    return absl::InvalidArgumentError(absl::StrCat(op.DebugName(), " ", kind, " ", slot.name,
                                                   ": expected a variable, found none"));
  }
  if (count > 1 && !slot.duplicable) {
    return absl::InvalidArgumentError(absl::StrCat(op.DebugName(), " ", kind, " ", slot.name,
                                                   ": expected one variable, found ", count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSlots(const Op& op, const OpSchema& schema) {
  for (const SlotSchema& slot : schema.inputs()) {
    WEFT_RETURN_IF_ERROR(
        CheckSlot(op, "input", slot, op.Input(slot.name).size(), /*required=*/!slot.optional));
  }
  for (const SlotSchema& slot : schema.outputs()) {
    WEFT_RETURN_IF_ERROR(
        CheckSlot(op, "output", slot, op.Output(slot.name).size(), /*required=*/false));
  }
  return absl::OkStatus();
}

}  // namespace weft
