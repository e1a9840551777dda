// Removes waits that others imply.
#ifndef WEFT_EXECUTOR_REWRITES_IMPLIED_WAITS_H_
#define WEFT_EXECUTOR_REWRITES_IMPLIED_WAITS_H_

#include "executor/plan/plan.h"

namespace weft {

// Of the waits of a stream between two of its ops and records, keeps those that order something
// which neither earlier waits nor the others do, and the events that they need. Those after its
// last op go. Ops are ordered as before. What is ordered across the begin or end of a block does
// not count: it depends on the path. O(plan * streams) for each pass over the plan; two suffice
// where streams wait for each other in turns.
void RemoveImpliedWaits(Plan* plan);

}  // namespace weft

#endif  // WEFT_EXECUTOR_REWRITES_IMPLIED_WAITS_H_
