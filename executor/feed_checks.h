// What a run is going to be fed with, checked by its types alone.
#ifndef WEFT_EXECUTOR_FEED_CHECKS_H_
#define WEFT_EXECUTOR_FEED_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "executor/feeder.h"
#include "executor/plan.h"
#include "proto/program.h"

namespace weft {

// The batches of a run, which Feeder::Create has accepted for the plan of `main`, before any of
// them is read. Does nothing where the source does not know its types.
//   InvalidArgument    an op cannot take its inputs (rows that differ between variables); names
//                      step and op, and what a rank is fed with. Ops from the first conditional
//                      block or loop on are not checked: what they take depends on values.
//   ResourceExhausted  a batch, with the parts of the ranks, exceeds the available memory
// O(steps), and O(ops of the program) for each combination of types.
absl::Status CheckFeeds(const Program& main, const Plan& plan, const FeedSource& source, int nranks,
                        int64_t steps, int64_t begin_step);

}  // namespace weft

#endif  // WEFT_EXECUTOR_FEED_CHECKS_H_
