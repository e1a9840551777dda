#include "ops/device_fault.h"

#include "absl/strings/str_cat.h"

namespace weft {

absl::Status ToStatus(const DeviceFault& fault) {
  if (fault.is_set == 0) return absl::OkStatus();
  if (fault.low > fault.high) {
    return absl::InvalidArgumentError(absl::StrCat("input ", fault.slot, ": division by zero"));
  }
  return absl::InvalidArgumentError(absl::StrCat("input ", fault.slot, ": ", fault.value,
                                                 " at position ", fault.position, " is not in [",
                                                 fault.low, ", ", fault.high, ")"));
}

}  // namespace weft
