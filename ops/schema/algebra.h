// What proofs may know of an op's arithmetic, beyond its traits.
#ifndef WEFT_OPS_SCHEMA_ALGEBRA_H_
#define WEFT_OPS_SCHEMA_ALGEBRA_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "ops/schema/op_schema.h"

namespace weft {

enum class Algebra : uint8_t {
  kNone,        // nothing: a function of its inputs
  kSum,         // Out = X[0] + X[1] + ...
  kAdd,         // Out = X + Y, broadcast
  kSubtract,    // Out = X - Y, broadcast
  kMultiply,    // Out = X * Y, broadcast: linear in each
  kDivide,      // Out = X / Y, broadcast: linear in X
  kScale,       // Out = X * attribute scale, plus attribute bias
  kCopy,        // Out = X
  kCast,        // Out = X, as attribute out_dtype
  kSplitEqual,  // Out[i]: part i of attribute num along attribute axis
  kConstant,    // Out: what attributes say; inputs give no more than a shape
  kZeros,       // Out: zeros, in the shape of the input
  kFill,        // Out: attribute value, in the shape of the input
  kMove,        // Out: elements, or all, of X, as the other inputs say which and where to
  kBackward,    // every output is linear in all inputs of slots that end in @GRAD together
  kRandom,      // Out: different in every run of the op, and on every rank
};

// O(1), but a few string comparisons: to be asked once per layout, not once per op. An op type
// without schema is kNone, or, where it ends in _grad, kBackward: what its name says.
Algebra AlgebraOf(absl::string_view type, const OpSchema* schema);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_ALGEBRA_H_
