// Finds the collectives with which the losses of a program become those of one device.
#ifndef WEFT_OPS_ANALYSIS_BATCH_EDITS_H_
#define WEFT_OPS_ANALYSIS_BATCH_EDITS_H_

#include "ops/analysis/batch_flow.h"
#include "proto/program.h"

namespace weft {

// The reductions and divisions after which losses that are no mean and no sum over the batch are
// one, and after which conditions on values of the batch hold on every rank as on one device. Other
// losses and conditions need none; of those that no edits help, nothing is changed.
//
// A mean over the batch that is no linear part of the loss, such as m in sqrt(m), is averaged over
// the ranks. Its gradient needs no collective: all ranks have the same, which is that of one
// device. A sum that no gradient flows through, such as the d in n / d of a weighted mean, is
// summed. If the number of ranks is known, d is also divided by it, so that n / d is a mean;
// otherwise n / d is a sum over the batch.
//
// Assumes that the relations of `options` hold; `options.edits` is ignored. O(arguments) for each
// of at most 16 walks.
BatchEdits FindBatchEdits(const Program& program, BatchFlowOptions options);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_BATCH_EDITS_H_
