// Streams on a CUDA device.
#ifndef WEFT_EXECUTOR_STREAMS_CUDA_STREAM_H_
#define WEFT_EXECUTOR_STREAMS_CUDA_STREAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "executor/streams/stream.h"

namespace weft {

// How many devices this process sees, 1 or more. Makes none current: a device that becomes current
// gets a context, which takes hundreds of megabytes of it. Unavailable, with the reason, if there
// is no device or no driver, and in a build without CUDA.
absl::StatusOr<int> CudaDeviceCount();

// Device `ordinal` of the CUDA runtime. Becomes the current device of the calling thread, which
// must be the host thread that drives its streams. Launch calls tasks with that device current;
// they enqueue their work on native_handle(). Streams do not synchronize with the default stream.
// Synchronize returns asynchronous errors of the device.
//
// Unavailable if there is no such device, and as CudaDeviceCount is.
absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(int ordinal);

}  // namespace weft

#endif  // WEFT_EXECUTOR_STREAMS_CUDA_STREAM_H_
