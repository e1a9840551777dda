// The order of the ops of a program on two devices.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_ORDER_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_ORDER_H_

#include <vector>

#include "absl/types/span.h"
#include "ops/schema/device_ops.h"

namespace weft {

enum class DeviceOrder {
  // After each op of the accelerator, the ops of the host that can run now: the host starts early.
  // While the host works, ops of the accelerator come first that do not wait for it.
  kEarlyStart,
  // As many ops of one device as can run, then as many of the other: few segments.
  kFewSwitches,
};

// An op and the earlier ones, by index, that must come before it.
struct PlacedOp {
  DeviceKind device = DeviceKind::kAccelerator;
  std::vector<int> after;
};

// A permutation of the ops. Ops of one device keep their order. Of two devices, those of the
// accelerator that can run keep their order. Those of the host come in the order in which they can
// run, and otherwise keep theirs: updates follow the gradients as backward completes them. O((ops +
// dependencies) log ops).
std::vector<int> OrderOps(absl::Span<const PlacedOp> ops, DeviceOrder order);

// Maximal runs of ops of one device.
int NumSegments(absl::Span<const PlacedOp> ops, absl::Span<const int> order);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_ORDER_H_
