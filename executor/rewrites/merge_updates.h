// Updates of several parameters as one op.
#ifndef WEFT_EXECUTOR_REWRITES_MERGE_UPDATES_H_
#define WEFT_EXECUTOR_REWRITES_MERGE_UPDATES_H_

#include "executor/plan/plan.h"

namespace weft {

// Makes one op of updates that follow one another directly, in place, with the same optimizer and
// attributes, if their kernel can (Kernel::merges_updates): of up to 64 that do not use what one of
// them writes, without half precision. Results have the same bits. O(plan).
void MergeUpdates(Plan* plan);

}  // namespace weft

#endif  // WEFT_EXECUTOR_REWRITES_MERGE_UPDATES_H_
