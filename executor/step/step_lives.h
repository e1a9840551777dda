// When the ops of a step run, on the timeline of a stream.
#ifndef WEFT_EXECUTOR_STEP_STEP_LIVES_H_
#define WEFT_EXECUTOR_STEP_STEP_LIVES_H_

#include <vector>

#include "absl/types/span.h"
#include "executor/plan/plan.h"

namespace weft {

// Positions in the instructions, both included. Empty: last < first.
struct Life {
  int first = 0;
  int last = -1;

  bool empty() const { return last < first; }
  void Add(const Life& other);
};

// By instruction, when its op may run; empty for other instructions. An op of the stream
// `timeline`, such as a compute stream, runs at its own position. An op of another stream runs
// after everything on the timeline that its stream has waited for, and until the timeline has
// waited for it, or else to the end of the step. So two ops whose lives do not overlap run one
// after the other.
//
// in_block: instructions that may run several times or not at all; their waits do not count.
// O(instructions x streams).
std::vector<Life> LivesOfOps(const Plan& plan, const std::vector<bool>& in_block, int timeline = 0);

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_STEP_LIVES_H_
