// How long a step takes on two devices, estimated.
#ifndef WEFT_OPS_ANALYSIS_DEVICES_DEVICE_TIMES_H_
#define WEFT_OPS_ANALYSIS_DEVICES_DEVICE_TIMES_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/devices/op_times.h"
#include "proto/program.h"

namespace weft {

struct DeviceSpeeds {
  OpTimeOptions host;             // and the batch
  double accelerator_speed = 50;  // times the host, in operations and in bytes
  double copy_bandwidth = 1e10;   // bytes per second, in each direction
  double copy_latency = 10e-6;    // seconds
};

// When the last stream is done, if each runs its ops one after the other, as soon as those that it
// waits for are done. Ops take as long as EstimateOpTimes says, copies their bytes, and collectives
// on streams of their own what `collective_seconds` says of their bytes. O(arguments + waits).
double EstimateStepSeconds(const ProgramFacts& facts, const DeviceSpeeds& speeds,
                           absl::FunctionRef<double(int64_t bytes)> collective_seconds);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_DEVICES_DEVICE_TIMES_H_
