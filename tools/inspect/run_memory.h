// The memory of a rank in `weft run`, before anything runs.
#ifndef WEFT_TOOLS_INSPECT_RUN_MEMORY_H_
#define WEFT_TOOLS_INSPECT_RUN_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "executor/run/memory_estimate.h"
#include "proto/program.h"

namespace weft {

// EstimateMemory, on CPUs, with as many ranks as the program says, or at least those that it names.
absl::StatusOr<MemoryEstimate> PredictRunMemory(const Program& program, int64_t batch);

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_RUN_MEMORY_H_
