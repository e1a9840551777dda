// How the outputs of an op relate to what one device has, given how its inputs do.
//
// A rule is sound, not complete: if it says more than kUnrelated, that holds for all values of the
// inputs. Assumption: the ranks have parts of equal size. Gradient ops have no rules of their own:
// GradientRelation (ops/schema/batch_relation.h) follows from those of the forward ops.
#ifndef WEFT_OPS_SCHEMA_BATCH_RULES_H_
#define WEFT_OPS_SCHEMA_BATCH_RULES_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/schema/batch_relation.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/infer_context.h"
#include "ops/schema/op_schema.h"
#include "proto/op_assumptions.h"
#include "proto/program.h"

namespace weft {

// Of an op that a rank computes for itself. `inputs`: by Op::input_args(). An op with a block, a
// collective and a gradient op are unrelated as soon as an input is not replicated. `schema` may be
// null (an unregistered type). `has_no_negative_sizes`: of inputs that stand for an attribute for
// which a negative number means something else (OpenSizeSlot). O(arguments + attributes).
BatchOutputs ApplyBatchRule(const Op& op, const OpSchema* schema, const TypeLookup& types,
                            absl::Span<const BatchRelation> inputs,
                            bool has_no_negative_sizes = false);

// Of an unregistered op that is a function, as the user says.
BatchOutputs ApplyAssumedRule(const Op& op, const OpAssumption& assumption, const TypeLookup& types,
                              absl::Span<const BatchRelation> inputs);

// Whether the outputs of an op are linear in all of its inputs together, so that its gradient op
// reads the shapes of values only.
bool IsLinearInAllInputs(const Op& op, const OpSchema* schema);

// Whether each element of the result is computed from one of each operand, which may repeat.
bool ComputesElements(const OpSchema& schema);

// The input slot of an op whose rule depends on has_no_negative_sizes; empty: it does not.
absl::string_view OpenSizeSlot(absl::string_view op_type);

// Of an op whose outputs are unrelated for a reason that its type does not tell: a clause that says
// it, and what to write instead. Empty: there is nothing to add. O(attributes).
absl::string_view WhyUnrelated(const Op& op);

// The input slot of an op type whose tensors are [time, batch, ...]; empty: none.
absl::string_view TimeMajorSlot(absl::string_view op_type);

// The output of a collective. `nranks` is unknown, so that power 1 stays what it is. `is_integer`:
// an average of different integers is rounded.
BatchRelation AfterCollective(const CollectiveOp& collective, BatchRelation in,
                              bool is_integer = false);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_BATCH_RULES_H_
