// Whether a block of gradients is what it should be: linear in the gradients that it is given.
#ifndef WEFT_OPS_ANALYSIS_LINEAR_BLOCKS_H_
#define WEFT_OPS_ANALYSIS_LINEAR_BLOCKS_H_

#include "proto/program.h"

namespace weft {

// Of an op with Trait::kBlockGrad: whether every op of its block, and of the blocks within, that
// takes a gradient, or what was made of one, is linear in all such inputs together. Follows names,
// whichever block they are declared in. O(ops of the blocks).
bool IsLinearInGradients(const Op& op);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_LINEAR_BLOCKS_H_
