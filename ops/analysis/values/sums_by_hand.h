// All-reduces that programs write with other ops.
#ifndef WEFT_OPS_ANALYSIS_VALUES_SUMS_BY_HAND_H_
#define WEFT_OPS_ANALYSIS_VALUES_SUMS_BY_HAND_H_

#include "absl/container/flat_hash_set.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

// Sums in place to one rank, of which the next op in the block that touches the variable, but for
// those that scale it in place, is a broadcast from that rank, in place, on the same ring: the two
// are an all-reduce. O(arguments).
absl::flat_hash_set<OpId> FindReducesForAll(const ProgramFacts& facts);

// Whether a reshape gives the rows that n ranks have gathered, one rank after the other, a first
// dimension of n, by its attribute: a variable may hold other dims than it declares for a while.
bool StacksRanks(const Op& op, int64_t n, const absl::optional<TensorType>& in);

// The reduction of an op along the first of the dimensions alone that `stacks`, such a reshape of
// `gathered`, gives its input; the output is without that dimension. None: the op is none such.
absl::optional<Reduction> ReducesFirstDim(const Op& op, const Op& stacks,
                                          const absl::optional<TensorType>& gathered);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_SUMS_BY_HAND_H_
