// Images with their channels last, from one convolution to the next.
#ifndef WEFT_EXECUTOR_REWRITES_CHANNELS_LAST_H_
#define WEFT_EXECUTOR_REWRITES_CHANNELS_LAST_H_

#include <vector>

#include "executor/plan/plan.h"
#include "ops/kernel.h"

namespace weft {

// Rewrites ops on images [batch, channels, space...] to work on images [batch, space..., channels],
// which convolutions, normalizations and biases read and write in order, without a copy in another
// layout. Islands of such ops begin at convolutions and grow over poolings, normalizations, biases
// and elementwise ops; inserted transpositions surround them. Filters keep their layout.
//
// The variables of the plan keep their dimensions: an image with channels last is another variable,
// which comes after them. Persistable variables, those in `accessed`, and those with a value when
// the step begins are written as the program says, and may be read as a copy. Those that blocks,
// ops on other streams or ops that move values use are also read as they are.
//
// Sums over images run in another order, so results differ in rounding. O(plan).
void KeepChannelsLast(const KernelTable& kernels, const std::vector<int>& accessed, Plan* plan);

}  // namespace weft

#endif  // WEFT_EXECUTOR_REWRITES_CHANNELS_LAST_H_
