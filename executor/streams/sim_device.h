// An accelerator that the host simulates.
#ifndef WEFT_EXECUTOR_STREAMS_SIM_DEVICE_H_
#define WEFT_EXECUTOR_STREAMS_SIM_DEVICE_H_

#include <cstdint>
#include <memory>

#include "executor/streams/stream.h"
#include "ops/memory.h"

namespace weft {

struct SimDeviceOptions {
  // Of its memory; 0: as much as the host has.
  int64_t memory_bytes = 0;
  // Of copies between its memory and the host's; 0: as fast as the host copies. Copies to the host
  // and from it do not slow each other down.
  double copy_bytes_per_s = 0;
  double copy_latency_s = 0;
};

// The accelerator of programs on two devices (ops/schema/device_ops.h) where there is none. It
// computes with the kernels of the host, on threads (executor/streams/thread_stream.h). Its memory
// is a Memory of its own: what lies there counts against memory_bytes, and Allocate throws
// std::bad_alloc beyond that. Plan::Build makes sure that no op uses the memory of the other
// device. `memory` provides the bytes, and must outlive the device.
std::unique_ptr<Device> NewSimDevice(const SimDeviceOptions& options,
                                     Memory* memory = HostMemory());

}  // namespace weft

#endif  // WEFT_EXECUTOR_STREAMS_SIM_DEVICE_H_
