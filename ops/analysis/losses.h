// Finds the losses of a program.
#ifndef WEFT_OPS_ANALYSIS_LOSSES_H_
#define WEFT_OPS_ANALYSIS_LOSSES_H_

#include <vector>

#include "proto/program.h"

namespace weft {

// The outputs, in op order, of the ops of the root block whose role has the loss bit but not the
// backward bit. Where an op has several outputs, those whose gradient an op with both bits fills,
// if there are any.
//
// Mixed precision multiplies the loss by a scale (an input slot with is_loss_scale holds it) and
// differentiates the product. The loss is then the other factor. O(ops).
std::vector<Symbol> FindLosses(const Program& program);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_LOSSES_H_
