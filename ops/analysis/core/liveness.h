// Liveness of variables, and peak memory.
#ifndef WEFT_OPS_ANALYSIS_CORE_LIVENESS_H_
#define WEFT_OPS_ANALYSIS_CORE_LIVENESS_H_

#include <cstdint>

#include "proto/program.h"

namespace weft {

// An estimate, in bytes, from declared types; all numbers are at most INT64_MAX.
struct PeakMemory {
  int64_t bytes = 0;
  // The part that persistable variables take; they live throughout.
  int64_t persistable_bytes = 0;
  // The first op of the root block at the peak; invalid if there are no ops.
  OpId op;
  // Variables whose size is not declared; `bytes` omits them.
  int64_t num_unknown = 0;
};

// The most memory that a step needs at once if every variable, also of sub-blocks, lives from the
// first op that names it to the last, and data variables (need_check_feed) from the start. An op of
// a sub-block counts as the op of the root block that runs the block. The parts of a buffer
// (ops/analysis/core/storage.h) share its memory, and live as long as it and each other. An unknown
// first dimension counts as `batch`, SelectedRows as the tensor that has their rows. Workspaces of
// ops and rounding by allocators do not count. O(arguments), plus the depth of the block for each.
PeakMemory EstimatePeakMemory(const Program& program, int64_t batch);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_LIVENESS_H_
