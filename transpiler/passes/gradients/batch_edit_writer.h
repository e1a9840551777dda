// Writes collectives that make values of the batch those of one device.
#ifndef WEFT_TRANSPILER_PASSES_GRADIENTS_BATCH_EDIT_WRITER_H_
#define WEFT_TRANSPILER_PASSES_GRADIENTS_BATCH_EDIT_WRITER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/analysis/values/batch_flow.h"
#include "proto/program.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// What is known of the ranks, for BatchFlow.
BatchFlowOptions FlowOptionsOf(const PassContext& context);

// Writes the edits (ops/analysis/values/batch_edits.h) into the root block of the main program:
// collectives on ring 0 and on the compute stream, and divisions by the number of ranks. Remarks,
// in the name of `pass`, give `why`. Returns whether there are edits.
//
// The gradient ops of an op that reads gathered samples write the gradient of all of them, which is
// summed over the ranks and scattered.
//
// FailedPrecondition if the gradient op of an op that divides by an edited input cannot be found;
// gathers and divisions need a known number of ranks. O(ops).
absl::StatusOr<bool> WriteBatchEdits(const BatchEdits& edits, absl::string_view pass,
                                     absl::string_view why, const PassContext& context,
                                     Program* main);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_GRADIENTS_BATCH_EDIT_WRITER_H_
