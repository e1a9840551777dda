// Building blocks of the inference functions of the op families.
#ifndef WEFT_OPS_SCHEMA_INFER_FUNCTIONS_H_
#define WEFT_OPS_SCHEMA_INFER_FUNCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
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
// Where the type of an input is unknown, checks pass, and outputs that depend on it stay unset.

// Runs `infer` with the types of the (first) variables of these input slots, if all are known.
OpSchema::InferFn IfKnown(
    const std::string& x,
    const std::function<absl::Status(InferContext&, const TensorType&)>& infer);
OpSchema::InferFn IfKnown(
    const std::string& x, const std::string& y,
    const std::function<absl::Status(InferContext&, const TensorType&, const TensorType&)>& infer);

// Variable i of every output slot has the type of variable i of input slot `slot`. The (first)
// variables of input slots `others` have the type of that of `slot`. Not for GradOf: in it, the
// output slots are those of the gradient op.
OpSchema::InferFn OutputsLike(std::string slot, const std::vector<std::string>& others = {});
// The (first) variables of output slots `outputs` have the type of that of input slot `slot`.
OpSchema::InferFn Like(const std::string& slot, std::vector<std::string> outputs);
// Variable i of every output slot "S@GRAD" has the type of variable i of input slot S.
OpSchema::InferFn GradsLikeInputs();

// The (first) variables of two input slots have the same element type, dimensions that fit, or
// both.
OpSchema::InferFn SameDType(std::string a, std::string b);
OpSchema::InferFn SameDims(std::string a, std::string b);
OpSchema::InferFn SameType(const std::string& a, const std::string& b);

// Out is like X, which has the axis that the attribute names. If attribute `flatten` is set, Out is
// X as one row.
OpSchema::InferFn LikeXAlongAxis(const char* attr);

// Out has the element type of input `x_slot` and the dims that `dims_of` returns for those of the
// input; XShape keeps the input's shape. Out stays unset if an optional input, which overrides
// attributes, is present.
using DimsFn = absl::StatusOr<Dims> (*)(const InferContext&, const Dims& x);
OpSchema::InferFn OutDims(DimsFn dims_of, const char* x_slot = "X");

// Out has the element type of attribute dtype and the dims of attribute shape.
absl::Status InferFromShapeAttr(InferContext& context);

// The inference of a gradient op that reads all inputs that `forward`, the inference of the op
// itself, needs. What it reads of the op's outputs, or of their gradients (S@GRAD), has the type of
// the output. Its outputs are as in GradsLikeInputs.
OpSchema::InferFn GradOf(OpSchema::InferFn forward);

// One after the other, up to the first error.
OpSchema::InferFn InOrder(std::vector<OpSchema::InferFn> functions);

// --- Gradient ops --------------------------------------------------------------------------------

// A gradient op reads inputs and outputs of its op (`reads`, where "X+" and "X-" are X since and
// until Paddle 2, and "X?" may be missing) and the gradients of its outputs `of_outputs`. It writes
// the gradients of its inputs `of_inputs`. It has the op's attributes.
struct GradSlots {
  std::vector<std::string> reads, of_outputs, of_inputs;
  bool optional = true;  // the gradients that it writes
};
// Of an op with slots X and Out: reads X and Out@GRAD, writes X@GRAD.
GradSlots GradOfX();

// Adds an op and its gradient op, type_grad, whose inference is `infer_grad`, or GradOf that of the
// op.
void AddWithGrad(OpSchemaTable* schemas, OpSchema op, const GradSlots& grad);
void AddWithGrad(OpSchemaTable* schemas, OpSchema op, const GradSlots& grad,
                 OpSchema::InferFn infer_grad);
// The gradient op alone.
OpSchema GradSchema(const OpSchema& op, std::string type, const GradSlots& grad,
                    OpSchema::InferFn infer);

// --- Checks --------------------------------------------------------------------------------------

// int32 or int64.
bool IsIndex(DType dtype);
// Whether an input overrides attributes: their values are unknown before the step.
bool HasAttrInput(const InferContext& context);

// Of inputs; OK if the type is unknown. Variable i of the slot has these dims.
absl::Status CheckDims(const InferContext& context, absl::string_view slot, const Dims& dims,
                       size_t i = 0);
// All are vectors of that size.
absl::Status CheckVectors(const InferContext& context, std::initializer_list<const char*> slots,
                          int64_t size);
// Variable i has that many elements, whatever its rank.
absl::Status CheckElements(const InferContext& context, absl::string_view slot, int64_t elements,
                           size_t i = 0);
// [batch, channels, height, width].
absl::Status CheckImage(const InferContext& context, const char* slot);

// Of attributes. A list has one number for each of `length` axes.
absl::Status CheckSameLength(const InferContext& context, const char* attr, size_t length);

// Of uniform_random: numbers from attribute min to max, and a diagonal that fits Out.
absl::Status CheckUniform(InferContext& context);

// `dims`, made from attribute shape, are dimensions or -1.
absl::Status CheckShapeAttr(const InferContext& context, const Dims& dims);

// The element type whose number in the format an attribute holds; an error if there is none, or,
// of an index, if it is not int32 or int64.
absl::StatusOr<DType> DTypeFromAttr(const InferContext& context, const char* attr);
absl::StatusOr<DType> IndexDTypeFromAttr(const InferContext& context, const char* attr);

// --- Dimensions ----------------------------------------------------------------------------------
// -1 is unknown: it fits everything, and results computed from it are unknown.

// May be equal at run time.
bool DimFits(int64_t a, int64_t b);
bool DimsFit(absl::Span<const int64_t> a, absl::Span<const int64_t> b);

// Sum and product of sizes, cut off at kMaxElements.
int64_t AddDim(int64_t a, int64_t b);
int64_t MulDim(int64_t a, int64_t b);
int64_t Product(absl::Span<const int64_t> dims);

// The dimensions of an elementwise result of x and y; none if they do not fit. The operand of the
// lower rank is aligned with the other one at `axis`, counted from the left; -1 aligns it at the
// right. It is repeated along dimensions that it lacks and along those of size 1.
// As in Paddle's elementwise ops, an unknown dimension gives way to a known one that is not 1.
absl::optional<Dims> BroadcastDims(const Dims& x, const Dims& y, int64_t axis = -1);

// Whether a tensor of dims `from` can be repeated to dims `to`, as broadcasting repeats it.
bool Repeats(const Dims& from, const Dims& to);

// An axis of a tensor of that rank, counted from the left; negative values count from the right.
// An error, naming the attribute, if there is no such axis.
absl::StatusOr<int> ResolveAxis(const InferContext& context, absl::string_view attr, int64_t value,
                                size_t rank);
// The same of the value of the attribute.
absl::StatusOr<int> ResolveAxis(const InferContext& context, absl::string_view attr, size_t rank);
// The same for a tensor of these dims. A scalar has axes 0 and -1.
absl::StatusOr<int> AxisFromAttr(const InferContext& context, absl::string_view attr,
                                 const Dims& dims);

// Fails for an end of -1 with a negative step in a program of Paddle 3 (ops/schema/slice_range.h).
OpSchema::InferFn NoOpenEndsOfPaddle2(const char* steps_attr);

// The dims of the slice of x that attributes axes, starts, ends and, unless null, `steps_attr`
// give, without the axes that `decrease_attr` lists. `must_be_one`: these have one element.
absl::StatusOr<Dims> SlicedDims(const InferContext& context, const Dims& x, const char* steps_attr,
                                const char* decrease_attr, bool must_be_one = false);

// The type with a dimension 0 in front: XShape outputs (reshape2, transpose2) keep the shape of
// their input in this form.
TensorType ToXShape(const TensorType& type);
// Of the gradient op of such an op: X@GRAD has the dims that XShape keeps, and the element type of
// Out@GRAD.
absl::Status InferGradFromXShape(InferContext& context);

// --- Rows of schemas -----------------------------------------------------------------------------

// Attribute values by the names of their types in the format. Scalars are literals: 1 is INT, 1.0f
// is FLOAT, true is BOOLEAN, "x" is STRING, int64_t{1} is LONG.
using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;
using Floats = std::vector<float>;
using Strings = std::vector<std::string>;

// Values of attributes that hold the number of an element type in the format.
constexpr int kFp32 = static_cast<int>(DType::kFloat32);
constexpr int kInt64 = static_cast<int>(DType::kInt64);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_INFER_FUNCTIONS_H_
