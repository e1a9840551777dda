#include "ops/schema/infer.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/op_attrs.h"

namespace weft {
namespace {

// An output that is the variable of an input has its type.
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
  WEFT_RETURN_IF_ERROR(context.attrs().CheckRanges([&](absl::string_view attr) {
    return absl::c_any_of(context.schema().inputs(), [&](const SlotSchema& slot) {
      return absl::c_linear_search(slot.attrs, attr) && context.HasInput(slot.name);
    });
  }));
  SetInPlaceOutputs(context);
  const OpSchema::InferFn& infer = context.schema().infer();
  return infer == nullptr ? absl::OkStatus() : infer(context);
}

absl::StatusOr<std::vector<absl::optional<TensorType>>> InferOutputs(const Op& op,
                                                                     const TypeLookup& lookup) {
  const OpSchema* schema = FindOpSchema(op.type());
  if (schema == nullptr) return std::vector<absl::optional<TensorType>>(op.output_args().size());
  const std::vector<SlotViolation> violations = SlotViolations(op, *schema);
  if (!violations.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(op.DebugName(), " ", ToString(violations[0])));
  }
  WEFT_ASSIGN_OR_RETURN(const OpAttrs attrs, OpAttrs::Decode(op, *schema));
  InferContext context(op, *schema, attrs, lookup);
  const absl::Status status = RunInference(context);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(op.DebugName(), " ", status.message()));
  }
  return context.TakeOutputs();
}

std::string ToString(const SlotViolation& violation) {
  const std::string slot =
      absl::StrCat(violation.is_output ? "output " : "input ", violation.slot->name);
  return violation.count == 0
             ? absl::StrCat(slot, ": expected a variable, found none")
             : absl::StrCat(slot, ": expected one variable, found ", violation.count);
}

std::vector<SlotViolation> SlotViolations(const Op& op, const OpSchema& schema) {
  const int64_t version = op.program().version();
  std::vector<SlotViolation> violations;
  for (const SlotSchema& slot : schema.inputs()) {
    const size_t count = op.Input(slot.name).size();
    const bool fits = count == 0 ? !slot.IsRequired(version) : count == 1 || slot.duplicable;
    if (!fits) violations.push_back({&slot, /*is_output=*/false, count});
  }
  for (const SlotSchema& slot : schema.outputs()) {
    const size_t count = op.Output(slot.name).size();
    if (count > 1 && !slot.duplicable) violations.push_back({&slot, /*is_output=*/true, count});
  }
  return violations;
}

absl::Status CheckNoUnknownSlots(const Op& op, const OpSchema& schema) {
  const auto error = [&](absl::string_view kind, absl::string_view name) {
    return absl::InvalidArgumentError(
        absl::StrCat(op.DebugName(), " ", kind, " ", name, ": unknown slot"));
  };
  for (const OpSignature::Slot& slot : op.signature().inputs) {
    const absl::string_view name = op.program().name(slot.name);
    if (slot.count > 0 && schema.FindInput(name) == nullptr) return error("input", name);
  }
  for (const OpSignature::Slot& slot : op.signature().outputs) {
    const absl::string_view name = op.program().name(slot.name);
    if (slot.count > 0 && schema.FindOutput(name) == nullptr) return error("output", name);
  }
  return absl::OkStatus();
}

}  // namespace weft
