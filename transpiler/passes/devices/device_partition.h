// Programs on two devices from programs on one.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_PARTITION_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_PARTITION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/schema/device_ops.h"
#include "proto/program_pair.h"
#include "transpiler/passes/devices/device_order.h"
#include "transpiler/passes/devices/device_values.h"

namespace weft {

// By OpId. Ops of blocks are where the op that has the block is.
using OpDevices = std::vector<DeviceKind>;

struct PartitionOptions {
  std::string accelerator;  // sim or gpu
  DeviceOrder order = DeviceOrder::kEarlyStart;
  Staging staging = Staging::kAll;
};

struct Partition {
  bool changed = false;
  int segments = 0;  // runs of ops on one device
  int copies = 0;
};

// Rewrites the main program, as pass hetero-partition says: orders the ops, inserts copies and
// waits, and names mirrors. O(arguments).
absl::StatusOr<Partition> PartitionProgram(const OpDevices& devices,
                                           const PartitionOptions& options, ProgramPair& programs);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_PARTITION_H_
