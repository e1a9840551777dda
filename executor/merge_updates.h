// Updates of several parameters as one op.
#ifndef WEFT_EXECUTOR_MERGE_UPDATES_H_
#define WEFT_EXECUTOR_MERGE_UPDATES_H_

#include "executor/plan.h"

namespace weft {

// Makes one op of updates that follow one another directly, in place, with the same optimizer and
// attributes, if their kernel can (Kernel::merges_updates). Results have the same bits. O(plan).
void MergeUpdates(Plan* plan);

}  // namespace weft

#endif  // WEFT_EXECUTOR_MERGE_UPDATES_H_
