// Shape and dtype inference, and the check of an op against its schema.
#ifndef WEFT_OPS_SCHEMA_INFER_H_
#define WEFT_OPS_SCHEMA_INFER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "ops/schema/infer_context.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

// The types of an op's outputs, one per Op::output_args() (none where they do not follow: unknown
// inputs, an op without schema or inference, outputs that are no tensors). Slots that the schema
// does not name are ignored: what is written to them is not inferred.
// InvalidArgument, naming the op and the slot, expected and found, where the inputs do not fit, a
// slot that is needed is missing, or an attribute is missing or of the wrong type.
// Unknown dimensions and types fit everything. O(slots + arguments + attributes).
absl::StatusOr<std::vector<absl::optional<TensorType>>> InferOutputs(const Op& op,
                                                                     const TypeLookup& lookup);

// The same of an op that a context describes, which takes the outputs. Slots and attributes have
// been checked; errors name the slot, not the op.
absl::Status RunInference(InferContext& context);

// InvalidArgument, naming the op and the slot, where the op uses a slot that the schema does not
// have. For whoever is to compute the op, not just to look at it: an input that a newer writer
// added must not be ignored then. O(slots).
absl::Status CheckNoUnknownSlots(const Op& op, const OpSchema& schema);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_INFER_H_
