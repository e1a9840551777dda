// Turns of values on their way to the host.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_STAGING_SLOTS_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_STAGING_SLOTS_H_

#include <vector>

#include "absl/types/span.h"
#include "proto/program.h"
#include "transpiler/passes/devices/device_values.h"
#include "transpiler/passes/support/device_accesses.h"

namespace weft {

// Divides the copies of the accelerator's values to the host into turns, such as buckets of
// gradients: as few copies as are together at least half as large as the largest one. While a turn
// is copied, the host reads that before, and that before it is done: turns can share two buffers.
//
//   accelerator   | make 0 | make 1 | make 2 | make 3 | ...
//   d2h                    | copy 0 | copy 1 | copy 2 | ...
//   host                            | read 0 | read 1 | ...
//
// Sets `turn` and `ends_turn`; returns the number of turns. A copy is in no turn if the host writes
// what it brings, or gets it several times, or if its size is not declared. O(arguments).
int TakeTurns(const Program& program, const DeviceAccesses& accesses,
              absl::Span<const DeviceStep> steps, std::vector<std::vector<DeviceCopy>>* copies);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_STAGING_SLOTS_H_
