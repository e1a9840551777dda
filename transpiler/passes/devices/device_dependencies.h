// What must stay before what in a program on two devices.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_DEPENDENCIES_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_DEPENDENCIES_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/program.h"
#include "transpiler/passes/devices/device_order.h"
#include "transpiler/passes/devices/device_partition.h"
#include "transpiler/passes/support/device_accesses.h"

namespace weft {

// By variable: those that share its memory from the startup program on. On two devices they do not,
// but ops that access them keep their order.
using SharedAtStart = absl::flat_hash_map<VarId, std::vector<VarId>>;

// The ops of the root block. Besides ops that access the same memory, ops keep their order that
// draw random numbers, communicate, or may do what nobody knows; and those of the accelerator do
// not change places with synchronizations and ops that have blocks. An op of the host that reads a
// slice of a fused buffer comes after the last write to the buffer, where that can then be copied
// at once. O(arguments).
std::vector<PlacedOp> FindDependencies(const Program& program, const OpDevices& devices,
                                       const DeviceAccesses& accesses,
                                       const SharedAtStart& shared_at_start);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_DEPENDENCIES_H_
