// Pieces that the inference functions of the op families are made of.
#ifndef WEFT_OPS_SCHEMA_INFER_FUNCTIONS_H_
#define WEFT_OPS_SCHEMA_INFER_FUNCTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/schema/infer_context.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// --- Whole inference functions -------------------------------------------------------------------
// Where an input's type is not known, checks pass and outputs that depend on it stay unset.

// Variable i of every output slot has the type of variable i of input slot `slot`.
OpSchema::InferFn OutputsLike(std::string slot);
// Variable i of every output slot "S@GRAD" has the type of variable i of input slot S.
OpSchema::InferFn GradsLikeInputs();

// The (first) variables of two input slots have the same element type, or dimensions that fit, or
// both.
OpSchema::InferFn SameDType(std::string a, std::string b);
OpSchema::InferFn SameDims(std::string a, std::string b);
OpSchema::InferFn SameType(std::string a, std::string b);

// Out is like X, which has the axis that the attribute names; where attribute `flatten` is set, Out
// is X as one row.
OpSchema::InferFn LikeXAlongAxis(const char* attr);

// Of a gradient op that reads what `forward`, the inference of the op itself, needs: everything
// that it reads of the op's outputs, or of their gradients (S@GRAD), has the type of the output.
// The outputs are as GradsLikeInputs has them.
OpSchema::InferFn GradOf(OpSchema::InferFn forward);

// Adds an op and its gradient op, type_grad. That reads the inputs and outputs of the op in `reads`
// and the gradients of its outputs `of_outputs`; it writes the gradients of its inputs
// `of_inputs`; it has the same attributes. Its inference is GradOf that of the op.
struct GradSlots {
  std::vector<std::string> reads, of_outputs, of_inputs;
};
void AddWithGrad(OpSchemaTable* schemas, OpSchema op, const GradSlots& grad);
// The gradient op alone, for a type or an inference of its own.
OpSchema GradSchema(const OpSchema& op, std::string type, const GradSlots& grad,
                    OpSchema::InferFn infer);

// Whether an input gives attributes (OpSchema::AttrIn): their values are not known before the step.
bool HasAttrInput(const InferContext& context);

// One after the other, up to the first error.
OpSchema::InferFn InOrder(std::vector<OpSchema::InferFn> functions);

// --- Dimensions ----------------------------------------------------------------------------------
// -1 is unknown: it fits everything, and whatever is computed from it is unknown.

// May be equal at run time.
bool DimFits(int64_t a, int64_t b);
bool DimsFit(absl::Span<const int64_t> a, absl::Span<const int64_t> b);

// Sum and product of sizes, cut off at kMaxElements.
int64_t AddDim(int64_t a, int64_t b);
int64_t MulDim(int64_t a, int64_t b);
int64_t Product(absl::Span<const int64_t> dims);

// The dimensions of an elementwise result of x and y. The operand of the lower rank is aligned with
// the other one at `axis`, counted from the left; -1 aligns it at the right; it is repeated along
// dimensions that it lacks or where it has size 1. None where that does not fit.
// (As in Paddle's elementwise ops: an unknown dimension gives way to a known one that is not 1.)
absl::optional<Dims> BroadcastDims(const Dims& x, const Dims& y, int64_t axis = -1);

// An axis of a tensor of that rank, counted from the left; negative ones in `value` count from the
// right. An error, naming the attribute, where there is no such axis.
absl::StatusOr<int> ResolveAxis(const InferContext& context, absl::string_view attr, int64_t value,
                                size_t rank);

// That of an attribute, for a tensor of these dims. A scalar has axes 0 and -1.
absl::StatusOr<int> AxisFromAttr(const InferContext& context, absl::string_view attr,
                                 const Dims& dims);

// The type with a dimension 0 in front: how XShape outputs (reshape2, transpose2) keep the shape of
// their input.
TensorType ToXShape(const TensorType& type);
// Of the gradient of such an op: X@GRAD has the dims that XShape keeps, and the element type of
// Out@GRAD.
absl::Status InferGradFromXShape(InferContext& context);

// --- Rows of schemas -----------------------------------------------------------------------------

// Attribute values by the names of their types in the format. Scalars are literals: 1 is INT, 1.0f
// is FLOAT, true is BOOLEAN, "x" is STRING, int64_t{1} is LONG.
using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;
using Strings = std::vector<std::string>;

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_INFER_FUNCTIONS_H_
