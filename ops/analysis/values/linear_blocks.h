// Whether a gradient block is linear in the gradients that it gets.
#ifndef WEFT_OPS_ANALYSIS_VALUES_LINEAR_BLOCKS_H_
#define WEFT_OPS_ANALYSIS_VALUES_LINEAR_BLOCKS_H_

#include "ops/analysis/values/signature_facts.h"
#include "proto/program.h"

namespace weft {

// For an op with Trait::kBlockGrad: whether every op of its block, and of nested blocks, that reads
// gradients, or values made of them, is linear in all of these together. Follows names, whichever
// block declares them. O(ops of the blocks).
bool IsLinearInGradients(const Op& op, const SignatureTable& signatures);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_LINEAR_BLOCKS_H_
