// Gradients that the backward pass computes and does not use.
#ifndef WEFT_OPS_ANALYSIS_TRAINING_LOST_GRADIENTS_H_
#define WEFT_OPS_ANALYSIS_TRAINING_LOST_GRADIENTS_H_

#include <string>
#include <vector>

#include "ops/analysis/core/op_traits.h"
#include "proto/program.h"

namespace weft {

struct LostGradient {
  OpId op;
  Symbol output;
  Symbol gradient;
};

// Gradients of outputs of collectives that depend on trained parameters, where no op takes the
// gradient back: append_backward of Paddle has no gradient op for some collectives, and does not
// say so. In op order; linear.
std::vector<LostGradient> LostGradients(const Program& program, const OpTraits& traits);

// "op 3 (c_concat): the gradient of its output, y@GRAD, is computed, but no op takes it back: ..."
std::string ToString(const Program& program, const LostGradient& lost);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TRAINING_LOST_GRADIENTS_H_
