// What communicators do on the streams of a GPU. An interface, so that tests run the communicators
// of GPUs on the host.
#ifndef WEFT_EXECUTOR_GPU_GPU_API_H_
#define WEFT_EXECUTOR_GPU_GPU_API_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "executor/communicators/communicator.h"

namespace weft {

// Streams are native handles (executor/streams/stream.h). All functions but Allocate enqueue and
// return, on the current device of the calling thread. Thread-safe.
class GpuApi {
 public:
  // A point in a stream: a CUDA event.
  class Mark {
   public:
    virtual ~Mark() = default;
  };

  virtual ~GpuApi() = default;

  // The current device of the calling thread. A thread that makes none current uses device 0, and
  // makes a context there: SetDevice comes before all other functions.
  virtual absl::StatusOr<int> CurrentDevice() = 0;
  virtual absl::Status SetDevice(int device) = 0;

  virtual absl::StatusOr<std::unique_ptr<Mark>> NewMark() = 0;
  // Moves the mark to the end of what was enqueued on `stream`.
  virtual absl::Status Record(Mark* mark, void* stream) = 0;
  // Later work on `stream` waits for the last Record before this call.
  virtual absl::Status Wait(Mark* mark, void* stream) = 0;
  // Whether the stream has passed the mark, or has failed: then the error is that of the stream.
  virtual bool HasPassed(Mark* mark) = 0;

  // Memory of the device. Throws std::bad_alloc.
  virtual std::shared_ptr<void> Allocate(size_t bytes) = 0;
  virtual absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) = 0;
  // Part `part` of `num_parts` of a collective between buffers of this device, with the bits of
  // RunLocalCollective (executor/communicators/local_collective.h).
  virtual absl::Status RunCollective(const CollectiveDesc& desc, absl::Span<const void* const> in,
                                     absl::Span<void* const> out, int part, int num_parts,
                                     void* stream) = 0;
};

// CUDA's; null in a build without it.
GpuApi* CudaApi();

}  // namespace weft

#endif  // WEFT_EXECUTOR_GPU_GPU_API_H_
