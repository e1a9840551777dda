// Values that go to the host in the place of a bucket's gradients.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_BUCKETS_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_BUCKETS_H_

#include "absl/status/statusor.h"
#include "proto/program_pair.h"
#include "transpiler/passes/devices/device_partition.h"

namespace weft {

// Where the accelerator makes a value in another variable of each slice of a fused buffer, as
// clipping, a cast or a regularization does, and the host reads these values, they become slices of
// a buffer of their own, which can be copied at once:
//
//   FusedOutput=[fused_gradient_0@SENT], Output=[clip_0.tmp_0, clip_1.tmp_0] = coalesce_tensor(...)
//   Out=[clip_0.tmp_0] = clip(X=[w@GRAD])
//   Out=[clip_1.tmp_0] = clip(X=[b@GRAD])
//
// The buffer has the values that the host reads, and no others. They must have the element type of
// each other and the dimensions of the slice of which they are made, and the host must read them
// after the last one is made, in the order of the program. The new ops run on the accelerator;
// `devices` gets them. Returns whether there are any. O(arguments).
absl::StatusOr<bool> FuseValuesForHost(OpDevices* devices, ProgramPair& programs);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_BUCKETS_H_
