// Columns of a schema (ops/schema/op_schema.h): the arithmetic of the op, what it makes of rows,
// its cost, its rule along the batch, and its form in PIR.
#ifndef WEFT_OPS_SCHEMA_OP_COLUMNS_H_
#define WEFT_OPS_SCHEMA_OP_COLUMNS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

class BatchContext;

// What proofs may assume of an op's arithmetic, beyond its traits.
enum class Algebra : uint8_t {
  kNone,          // nothing: a function of its inputs
  kSum,           // Out = X[0] + X[1] + ...
  kAdd,           // Out = X + Y, broadcast, as are the pairs that follow
  kSubtract,      // Out = X - Y
  kMultiply,      // Out = X * Y: linear in each
  kDivide,        // Out = X / Y: linear in X
  kFloorDivide,   // Out = floor(X / Y)
  kModulo,        // Out = X - floor(X / Y) * Y
  kMaximum,       // Out = max(X, Y)
  kMinimum,       // Out = min(X, Y)
  kEqual,         // Out = X == Y
  kNotEqual,      // Out = X != Y
  kLess,          // Out = X < Y
  kLessEqual,     // Out = X <= Y
  kGreater,       // Out = X > Y
  kGreaterEqual,  // Out = X >= Y
  kAnd,           // Out = X && Y
  kOr,            // Out = X || Y
  kXor,           // Out = X xor Y
  kNot,           // Out = !X
  kScale,         // Out = X * attribute scale (or ScaleTensor), plus attribute bias
  kIncrement,     // Out = X + attribute step
  kSqrt,          // Out = the square root of X
  kCopy,          // Out = X
  kCast,          // Out = X, as attribute out_dtype
  kReshape,       // Out: the elements of X in another shape
  kConcat,        // Out: X[0], X[1], ... along attribute axis
  kSplitEqual,    // Out[i]: part i along attribute axis, of attribute num or of sizes sections
  kConstant,      // Out: a function of the attributes; inputs give at most a shape
  kZeros,         // Out: zeros, in the shape of the input
  kFill,          // Out: attribute value, in the shape of the input
  kMove,          // Out: elements of X, or all; other inputs say which, and where to
  // Out: elements of X plus Residual, as rows; ResidualOut: the others, which a later step adds.
  // Out stands for the whole sum, as a gradient stands for itself although parts of it come later.
  kSparsify,
  kBackward,  // outputs are linear in the inputs of slots that end in @GRAD together
  kRandom,    // Out: different in every run of the op, and on every rank
};

// What an op makes of SelectedRows, where that differs from what it makes of the dense tensor.
enum class RowsRule : uint8_t {
  kAsDense,       // it does not differ
  kMerges,        // Out: X, where rows of one index have become their sum
  kMergesFirst,   // Out: a function of X, where they have; has one row an index
  kTakes,         // Out: the elements of the rows of X, which is SelectedRows
  kIgnoresZeros,  // Out does not change if zeros are added to the elements of X
  // An update that keeps parameter and states where rows have no gradient. A gradient of zeros
  // would change them.
  kUpdatesAlone,
};

// Multiplications and additions beyond a few per element.
enum class WorkKind : uint8_t {
  kElements,  // a few per element of arguments
  kProduct,   // matrix products: of X and Y, in a gradient also with Out@GRAD
  // Filter over Input; in a gradient also with Output@GRAD.
  kConvolution,
  kTransposedConvolution,
};

// A last step of an op, before it writes its result.
enum class PostOpKind : uint8_t {
  kNone,
  kBias,  // adds a number to each channel
  kAdd,   // adds a tensor
  kRelu,  // max(result, 0)
};

// What an op does to powers of n in its inputs (BatchRelation::power).
enum class Powers : uint8_t {
  kNone,      // nonlinear: all must be 0
  kAffine,    // a linear function plus a constant: all must be 0
  kFirst,     // linear in slot X or Input; those of other inputs must be 0
  kMean,      // the same, but a mean: one of integers is rounded and not linear
  kTable,     // linear in slot W; those of other inputs must be 0
  kTogether,  // linear in all inputs together: all must be alike
  kProduct,   // linear in each input: they add up
  kQuotient,  // that of Y is subtracted from that of X
  kAny,       // the outputs do not depend on the values of the inputs, only on their shapes
  kOwn,       // the rule does everything itself
  kPositive,  // of one input: positive multiples of it give these multiples, as a norm does
  kSign,      // of one input: positive multiples of it give the same
};

// How the outputs of an op relate to the reference values (ops/schema/batch_rules.h).
struct BatchRule {
  // Sets the outputs; leaves those unrelated about which it knows nothing. Unless powers are kOwn,
  // the rule sees inputs without powers, all of them replicated or sharded, at least one sharded,
  // and does not set powers that stem from inputs. Null: the algebra and the traits of the op say
  // all that is known.
  std::function<void(BatchContext&)> run;
  Powers powers = Powers::kNone;
  // An input slot whose tensors are [time, batch, ...] always; empty: none.
  absl::string_view time_major = "";
  // An input slot that stands for an attribute in which a negative number means something else, so
  // that the rule depends on BatchContext::has_no_negative_sizes; empty: none.
  absl::string_view open_size = "";
  // Why `run` is null, of an op whose traits do not say it.
  absl::string_view why_none = "";
};

// An op of PIR that is read as the op (proto/formats/pir/op_table.h), and its gradient op, as text.
struct PirForm {
  std::string op, grad;
};

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_OP_COLUMNS_H_
