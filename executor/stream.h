// Streams and events: work that runs in order, beside the host and beside other streams.
//
// The same interface is filled by host threads (executor/thread_stream.h) and by CUDA
// (executor/cuda_stream.h). What holds for CUDA's streams and events holds here.
#ifndef WEFT_EXECUTOR_STREAM_H_
#define WEFT_EXECUTOR_STREAM_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/memory.h"

namespace weft {

// A point in a stream that other streams can wait for. Made by a Device; recorded on one stream of
// that device only, any number of times; must outlive the streams that it is given to.
class Event {
 public:
  virtual ~Event() = default;

 protected:
  Event() = default;
};

// A queue of work that runs in order. One host thread drives all streams and events of a device.
//
// Errors: the first task that fails poisons its stream. Later tasks are skipped, events still
// fire. An event that fires on a poisoned stream poisons the streams that wait for it, so nothing
// computes from what was never made, and nothing hangs.
class Stream {
 public:
  // Short closures (two words) are stored without an allocation.
  using Task = std::function<absl::Status()>;

  // Finishes what was launched.
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Appends work and returns at once. A host stream calls `task` on its own thread. A device
  // stream calls it here and now, and the task enqueues its work with native_handle().
  virtual void Launch(Task task) = 0;

  // `event` fires when the work launched so far is done. Recording it again forgets the earlier
  // record, but not for a Wait that came before.
  virtual void Record(Event* event) = 0;

  // Work launched from here on starts after the last Record of `event` that came before this call
  // (at once where there was none). The host does not block.
  virtual void Wait(Event* event) = 0;

  // Blocks the host until everything launched is done. Returns the first error, and again at every
  // later call.
  virtual absl::Status Synchronize() = 0;

  // The cudaStream_t of a CUDA stream; nullptr on the host.
  virtual void* native_handle() const { return nullptr; }

 protected:
  Stream() = default;
};

// Where streams come from.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "cpu", "cuda:0"
  // Where tensors that its streams work on live. Valid as long as the device.
  virtual Memory* memory() = 0;
  // `name` is what traces and debuggers show. ResourceExhausted where the system has no more.
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream(absl::string_view name) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> NewEvent() = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_STREAM_H_
