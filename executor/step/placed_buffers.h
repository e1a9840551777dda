// Fused buffers that lie in the arena of a step.
#ifndef WEFT_EXECUTOR_STEP_PLACED_BUFFERS_H_
#define WEFT_EXECUTOR_STEP_PLACED_BUFFERS_H_

#include <cstdint>
#include <vector>

#include "executor/step/step_resources.h"
#include "executor/step/step_types.h"

namespace weft {

struct PlacedBuffer {
  std::vector<int> variables;    // the buffer and its slices
  std::vector<int64_t> offsets;  // of these in the buffer, in bytes
  bool has_gaps = false;         // between slices, or at the end
};

// The buffers that one coalesce_tensor of the root block makes, without values, of variables that
// no other one has, all of them of known types. O(plan).
std::vector<PlacedBuffer> FindPlacedBuffers(const StepResources& resources, const StepTypes& types);

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_PLACED_BUFFERS_H_
