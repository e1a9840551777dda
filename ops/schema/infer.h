// Type inference, and checks of an op against its schema.
#ifndef WEFT_OPS_SCHEMA_INFER_H_
#define WEFT_OPS_SCHEMA_INFER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "ops/schema/infer_context.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

// The types of an op's outputs, one per Op::output_args(). None if unknown: inputs are unknown, the
// op has no schema or inference, or the output is not a tensor. Slots that the schema does not name
// are ignored, and their outputs are not inferred.
// InvalidArgument, naming the op and the slot, expected and found, if the inputs do not fit, a
// required slot is missing, or an attribute is missing or has the wrong type.
// Unknown dimensions and types fit everything. O(slots + arguments + attributes).
absl::StatusOr<std::vector<absl::optional<TensorType>>> InferOutputs(const Op& op,
                                                                     const TypeLookup& lookup);

// The same for an op that a context describes; the context takes the outputs. The caller has
// checked slots and attributes. Errors name the slot, not the op.
absl::Status RunInference(InferContext& context);

// A slot that holds another number of variables than the schema expects.
struct SlotViolation {
  const SlotSchema* slot = nullptr;
  bool is_output = false;
  size_t count = 0;  // 0: an input is missing; more: one variable was expected
};

// "input X: expected one variable, found 2"
std::string ToString(const SlotViolation& violation);

// Missing inputs that are not optional, and slots for one variable that hold several, in the order
// of the schema. Outputs may always be missing: an unused output is left out. Slots that the schema
// does not name are ignored. Depends on the op's signature only. O(slots).
std::vector<SlotViolation> SlotViolations(const Op& op, const OpSchema& schema);

// InvalidArgument, naming the op and the slot, if the op uses a slot that the schema does not have.
// Code that computes the op calls it, so as not to ignore an input that a newer writer added.
// O(slots).
absl::Status CheckNoUnknownSlots(const Op& op, const OpSchema& schema);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_INFER_H_
