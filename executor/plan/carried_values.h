// Values that one step leaves to the next although their variables are not persistable.
#ifndef WEFT_EXECUTOR_PLAN_CARRIED_VALUES_H_
#define WEFT_EXECUTOR_PLAN_CARRIED_VALUES_H_

#include <vector>

#include "executor/plan/plan.h"

namespace weft {

// Variables that an op may read in a step before any op has written them in this step, ascending:
// the block, or the collective, that writes them may be skipped, and then they still have the value
// of an earlier step. Not those that are persistable, fed (`fed`), or arrays, which every step
// clears.
//
// May name too many, but not too few. It knows that blocks with the same condition, which nothing
// writes in between, run both or not at all, such as a conditional block and its gradient; and that
// select_input reads the variable that was written (SelectsInput). O(instructions log
// instructions), if blocks nest a few times; where many ops run the same blocks, it gives up and
// names all variables of blocks.
std::vector<int> FindCarriedValues(const Plan& plan, const std::vector<int>& fed);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_CARRIED_VALUES_H_
