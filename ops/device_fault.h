// What kernels of a device find wrong with elements that they read.
#ifndef WEFT_OPS_DEVICE_FAULT_H_
#define WEFT_OPS_DEVICE_FAULT_H_

#include <cstdint>

#include "absl/status/status.h"

namespace weft {

// The first such element. In memory that the host and the device share: the device writes it once,
// the host reads it after it has waited for the device.
struct DeviceFault {
  uint32_t is_set = 0;
  int op = -1;                 // KernelContext::op
  const char* slot = nullptr;  // text of the host: the device never reads it
  int64_t value = 0;
  // It is not in [low, high); low > high: it is a divisor, 0.
  int64_t low = 0, high = 0;
  int64_t position = 0;  // of the element in the slot
};

// InvalidArgument, with slot and value, if the fault is set.
absl::Status ToStatus(const DeviceFault& fault);

}  // namespace weft

#endif  // WEFT_OPS_DEVICE_FAULT_H_
