// What proofs may assume of an op's arithmetic, beyond its traits.
#ifndef WEFT_OPS_SCHEMA_ALGEBRA_H_
#define WEFT_OPS_SCHEMA_ALGEBRA_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

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

// The algebra of an op type with that schema. An unregistered type (no schema) is kBackward if its
// name ends in _grad, kRandom if it is known to draw, otherwise kNone. O(1).
Algebra AlgebraOf(absl::string_view type, const OpSchema* schema);
// The same of an op with that schema. An op of an unregistered type is kRandom, too, if an
// attribute or a slot has "seed" in its name. O(attributes + slots).
Algebra AlgebraOf(const Op& op, const OpSchema* schema);

// The op whose algebra is kSum.
const OpSchema& SumSchema();

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_ALGEBRA_H_
