// Gathers shared parameters from the ranks before a step uses them.
#ifndef WEFT_TRANSPILER_PASSES_SHARDING_PARAMETER_GATHERS_H_
#define WEFT_TRANSPILER_PASSES_SHARDING_PARAMETER_GATHERS_H_

#include <vector>

#include "absl/types/span.h"
#include "proto/program.h"
#include "transpiler/passes/sharding/shared_bucket.h"
#include "transpiler/passes/support/program_edits.h"

namespace weft {

struct GatherOptions {
  int nrings = 1;    // rings for other communication: those for gathers follow
  int prefetch = 1;  // gathers that run at a time, each on its ring; 0: none runs ahead
  bool frees = false;
};

// Before the first op of the root block that uses a parameter of a bucket, inserts the wait for the
// all-gather of the bucket, and launches the gather that is `prefetch` buckets ahead, which runs
// meanwhile. With `frees`, backward ops use parameters that are gathered anew, in the order in
// which they need them; ops with blocks keep the parameters of a bucket for the whole step.
// O(arguments).
void GatherParameters(const Program& main, absl::Span<const SharedBucket> buckets,
                      const GatherOptions& options, ProgramEdits* edits);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SHARDING_PARAMETER_GATHERS_H_
