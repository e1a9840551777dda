// Parameters that an outer optimizer makes of what ranks have averaged.
#ifndef WEFT_OPS_ANALYSIS_CORE_SYNCHRONIZED_H_
#define WEFT_OPS_ANALYSIS_CORE_SYNCHRONIZED_H_

#include "absl/container/flat_hash_set.h"
#include "ops/analysis/core/storage.h"
#include "proto/program.h"
#include "proto/setting.h"

namespace weft {

// The variables of the root block that ops make, in any step, of what an all-reduce has given all
// ranks, updates by gradients apart. Empty unless the setting says that outer gradients travel for
// several steps, are mixed with what a rank has, or are rounded: where an average becomes a
// parameter at once, its value in one step says so. O(arguments) for each op on the longest way.
absl::flat_hash_set<VarId> FindSynchronized(const Program& program, const Storage& storage,
                                            const Setting& setting);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_SYNCHRONIZED_H_
