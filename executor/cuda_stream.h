// Streams on a CUDA device.
#ifndef WEFT_EXECUTOR_CUDA_STREAM_H_
#define WEFT_EXECUTOR_CUDA_STREAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "executor/stream.h"

namespace weft {

// Device `ordinal` of the CUDA runtime; becomes the current one of the calling thread, which is to
// be the host thread that drives its streams. Tasks are called by Launch, with that device current,
// and enqueue their work on native_handle(); streams do not synchronize with the default stream.
// Asynchronous errors of the device come out of Synchronize.
//
// Unavailable, with the reason, where there is no such device or no driver, and in a build without
// CUDA.
absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(int ordinal);

}  // namespace weft

#endif  // WEFT_EXECUTOR_CUDA_STREAM_H_
