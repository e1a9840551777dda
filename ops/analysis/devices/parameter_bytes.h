// What training keeps for each element of a parameter.
#ifndef WEFT_OPS_ANALYSIS_DEVICES_PARAMETER_BYTES_H_
#define WEFT_OPS_ANALYSIS_DEVICES_PARAMETER_BYTES_H_

#include <array>
#include <cstdint>

#include "ops/analysis/core/program_facts.h"
#include "ops/schema/device_ops.h"

namespace weft {

struct ParameterBytes {
  int64_t elements = 0;                          // of all parameters that optimizers update
  std::array<int64_t, kNumDeviceKinds> bytes{};  // by device; one device: the accelerator

  // For an element; 0 without parameters.
  double Of(DeviceKind device) const {
    return elements == 0 ? 0
                         : static_cast<double>(bytes[static_cast<int>(device)]) /
                               static_cast<double>(elements);
  }
};

// Counts, with declared types, the dense parameters that optimizers update, their master weights,
// the state of the optimizers, the gradients that these take, what is cast from parameters or to
// gradients (mixed precision), and copies of all of them in the memory of the other device.
// O(arguments).
ParameterBytes FindParameterBytes(const ProgramFacts& facts);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_DEVICES_PARAMETER_BYTES_H_
