// Updates of zeros, which need not read them.
#ifndef WEFT_EXECUTOR_REWRITES_UPDATES_FROM_ZERO_H_
#define WEFT_EXECUTOR_REWRITES_UPDATES_FROM_ZERO_H_

#include <vector>

#include "executor/plan/plan.h"

namespace weft {

// Lets an update fill its parameter with zeros, and round what it makes of it, block by block, if
// its kernel can (KernelSpec::starts_from_zero):
//
//   Out=[d] = fill_constant() {value=0.0}
//   ParamOut=[d] = adam(Param=[d], ...)
//   Out=[h] = cast(X=[d])                   to half precision; the only other op that reads d
//
// becomes one op, which makes h, or d if there is no such cast. Pass optimizer-offload writes these
// ops on the host, which then does not read and write d in passes of their own. Of variables that
// are neither in `accessed` nor persistable, outside of blocks. Results have the same bits.
// O(plan).
void StartUpdatesFromZero(const std::vector<int>& accessed, Plan* plan);

}  // namespace weft

#endif  // WEFT_EXECUTOR_REWRITES_UPDATES_FROM_ZERO_H_
