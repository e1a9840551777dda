// What proofs may assume of an op (ops/schema/op_columns.h lists what they can).
#ifndef WEFT_OPS_SCHEMA_ALGEBRA_H_
#define WEFT_OPS_SCHEMA_ALGEBRA_H_

#include "absl/strings/string_view.h"
#include "ops/schema/op_columns.h"
#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

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
