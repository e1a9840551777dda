#include "ops/schema/check_slots.h"

#include "absl/strings/str_cat.h"

namespace weft {

std::string ToString(const SlotViolation& violation) {
  const std::string slot =
      absl::StrCat(violation.is_output ? "output " : "input ", violation.slot->name);
  return violation.count == 0
             ? absl::StrCat(slot, ": expected a variable, found none")
             : absl::StrCat(slot, ": expected one variable, found ", violation.count);
}

std::vector<SlotViolation> SlotViolations(const Op& op, const OpSchema& schema) {
  std::vector<SlotViolation> violations;
  for (const SlotSchema& slot : schema.inputs()) {
    const size_t count = op.Input(slot.name).size();
    const bool fits = count == 0 ? slot.optional : count == 1 || slot.duplicable;
    if (!fits) violations.push_back({&slot, /*is_output=*/false, count});
  }
  for (const SlotSchema& slot : schema.outputs()) {
    const size_t count = op.Output(slot.name).size();
    if (count > 1 && !slot.duplicable) violations.push_back({&slot, /*is_output=*/true, count});
  }
  return violations;
}

absl::Status CheckSlots(const Op& op, const OpSchema& schema) {
  const std::vector<SlotViolation> violations = SlotViolations(op, schema);
  if (violations.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(op.DebugName(), " ", ToString(violations[0])));
}

}  // namespace weft
