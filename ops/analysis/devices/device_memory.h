// The memory that a step takes on each of two devices, before anything runs.
#ifndef WEFT_OPS_ANALYSIS_DEVICES_DEVICE_MEMORY_H_
#define WEFT_OPS_ANALYSIS_DEVICES_DEVICE_MEMORY_H_

#include <array>
#include <cstdint>

#include "ops/analysis/core/program_facts.h"
#include "ops/schema/device_ops.h"
#include "proto/feed_layout.h"
#include "proto/program.h"

namespace weft {

// In bytes. At most INT64_MAX.
struct DeviceMemory {
  int64_t kept = 0;  // between steps
  int64_t step = 0;  // of the values of a step

  int64_t bytes() const;
};

struct DeviceMemories {
  std::array<DeviceMemory, kNumDeviceKinds> of{};  // by device; one device: the accelerator
  // Variables of the accelerator whose size is not known; they do not count.
  int64_t num_unknown = 0;

  const DeviceMemory& Of(DeviceKind device) const { return of[static_cast<int>(device)]; }
};

// From above, what executor/run/memory_estimate.h finds exactly with kernels: values live as in
// executor/step/step_lives.h, on the timeline of the compute stream of their device, but do not
// share memory with values from which an op could make them in place. Values that ops of blocks
// use, data, losses, and fused buffers on one device are kept. Ops without kernels for half
// precision, as any op may be, convert arguments. Rows take as much as the gradients that they come
// from. What gaps between values may take is added: an eighth, on two devices a quarter. `batch`
// replaces the dimension of data that `feeds` splits, and -1 where types are not inferred.
// O(arguments + ops x streams).
DeviceMemories EstimateDeviceMemory(const ProgramFacts& facts, const FeedLayouts& feeds,
                                    int64_t batch);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_DEVICES_DEVICE_MEMORY_H_
