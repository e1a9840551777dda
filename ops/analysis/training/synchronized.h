// Parameters that an outer optimizer makes of what ranks have averaged.
#ifndef WEFT_OPS_ANALYSIS_TRAINING_SYNCHRONIZED_H_
#define WEFT_OPS_ANALYSIS_TRAINING_SYNCHRONIZED_H_

#include "absl/container/flat_hash_set.h"
#include "ops/analysis/core/program_facts.h"
#include "proto/program.h"
#include "proto/setting.h"

namespace weft {

// The variables of the root block that ops make, in any step, of what an all-reduce has given all
// ranks, if that is a linear function of parameters. From the parameters to the all-reduce lead
// linear ops, and from there also products and quotients. None of them reads what is computed from
// a part of the batch or drawn: outer optimizers do not, and a loss that ranks reduce moves no
// parameter. O(arguments).
//
// Empty unless `setting` says that outer gradients travel for several steps, are mixed with what a
// rank has, or are rounded. Otherwise an average becomes a parameter at once, and its value in one
// step says so.
absl::flat_hash_set<VarId> FindSynchronized(const ProgramFacts& facts, const Setting& setting);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TRAINING_SYNCHRONIZED_H_
