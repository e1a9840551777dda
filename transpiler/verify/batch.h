// Layer kBatch: what makes a step on many ranks differ from one device, although no rank does
// anything wrong.
#ifndef WEFT_TRANSPILER_VERIFY_BATCH_H_
#define WEFT_TRANSPILER_VERIFY_BATCH_H_

#include "absl/types/optional.h"
#include "ops/analysis/batch_flow.h"
#include "ops/analysis/feed_layout.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "transpiler/verify/finding.h"

namespace weft {

// How BatchFlow follows the main program. `feeds` is empty: as the program suggests.
BatchFlowOptions BatchOptionsOf(const ConstProgramPair& programs, const FeedLayouts& feeds,
                                absl::optional<int> nranks);

// W701 to W711, one for each cause. `sums_are_wanted`: the user wants gradients summed, whatever
// the losses are.
void CheckBatch(const Program& main, const BatchFlow& flow, bool sums_are_wanted, ProgramRef ref,
                Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_BATCH_H_
