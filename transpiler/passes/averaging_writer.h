// The ops that average over the ranks, as LocalSGD needs them.
#ifndef WEFT_TRANSPILER_PASSES_AVERAGING_WRITER_H_
#define WEFT_TRANSPILER_PASSES_AVERAGING_WRITER_H_

#include "absl/types/optional.h"
#include "proto/rewriter.h"
#include "transpiler/passes/averaging_plan.h"
#include "transpiler/passes/unique_names.h"

namespace weft {

// Appends to `block` the ops that carry the plan out. The tensors of one element type are averaged
// by one collective, through a buffer where they are several; element types take rings
// 0 .. nrings-1 in turn and are in flight together. With a known number of ranks the collective
// sums, and the sum is divided; else it averages. O(tensors).
void WriteAveraging(const AveragingPlan& plan, int nrings, absl::optional<int> nranks, int block,
                    UniqueNames* names, Rewriter* rewriter);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_AVERAGING_WRITER_H_
