// Whether a gradient block is linear in the gradients that it gets.
#ifndef WEFT_OPS_ANALYSIS_VALUES_LINEAR_BLOCKS_H_
#define WEFT_OPS_ANALYSIS_VALUES_LINEAR_BLOCKS_H_

#include "absl/container/flat_hash_set.h"
#include "absl/types/optional.h"
#include "ops/analysis/values/signature_facts.h"
#include "proto/program.h"

namespace weft {

// For an op with Trait::kBlockGrad: the names of the gradients that it gets, and of what its block
// and nested blocks make of them. None: not every op that reads such values is linear in all of
// these together. Follows names, whichever block declares them. O(ops of the blocks).
absl::optional<absl::flat_hash_set<Symbol>> FollowGradients(const Op& op,
                                                            const SignatureTable& signatures);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_LINEAR_BLOCKS_H_
