// Finds the losses of a program.
#ifndef WEFT_OPS_ANALYSIS_TRAINING_LOSSES_H_
#define WEFT_OPS_ANALYSIS_TRAINING_LOSSES_H_

#include <vector>

#include "proto/program.h"

namespace weft {

// The outputs, in op order, of the ops of the root block whose role has the loss bit but not the
// backward bit. Of several outputs, those whose gradient an op with both bits fills, if any.
//
// Mixed precision multiplies the loss by a scale (the argument of an input slot with is_loss_scale)
// and differentiates the product. The loss is then the other factor. O(ops).
std::vector<Symbol> FindLosses(const Program& program);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TRAINING_LOSSES_H_
