// How long variables live, and how much memory they take at once.
#ifndef WEFT_OPS_ANALYSIS_LIVENESS_H_
#define WEFT_OPS_ANALYSIS_LIVENESS_H_

#include <cstdint>

#include "proto/program.h"

namespace weft {

// An estimate, in bytes, from declared types; all numbers are at most INT64_MAX.
struct PeakMemory {
  int64_t bytes = 0;
  // Of these, what lives throughout: persistable variables.
  int64_t persistable_bytes = 0;
  // The first op of the root block at which the peak is reached; invalid where it has no ops.
  OpId op;
  // Variables whose size is not declared; they are not counted.
  int64_t num_unknown = 0;
};

// The most memory that a step needs at once if every variable of the root block, and of sub-blocks,
// is there from the first op that names it to the last, and data variables (need_check_feed) from
// the beginning. An op of a sub-block counts as the op of the root block that holds the block. A
// fused buffer (Trait::kAlias, slot FusedOutput) is its members, which live as long as it and each
// other. An unknown first dimension counts as `batch`, SelectedRows as the tensor that their rows
// are of. What ops allocate for themselves, and rounding by allocators, does not count.
// O(arguments), plus the depth of the block for each.
PeakMemory EstimatePeakMemory(const Program& program, int64_t batch);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_LIVENESS_H_
