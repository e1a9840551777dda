// The Paddle that runs what passes write.
#ifndef WEFT_TRANSPILER_PIPELINE_TARGET_H_
#define WEFT_TRANSPILER_PIPELINE_TARGET_H_

#include <cstdint>

namespace weft {

enum class TargetDevice { kCuda, kXpu, kCustom, kCpu };

struct Target {
  // The major version. Paddle 3 has other ops for communication than Paddle 2.
  int paddle_version = 2;
  TargetDevice device_kind = TargetDevice::kCuda;
};

// The major version of the Paddle that wrote a program of `version` (Program::version): 2 for older
// ones and for development builds, which write 0.
constexpr int PaddleVersionOf(int64_t version) { return version >= 3'000'000 ? 3 : 2; }

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_TARGET_H_
