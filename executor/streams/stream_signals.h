// How work on the streams of a device and threads of the host wait for each other.
#ifndef WEFT_EXECUTOR_STREAMS_STREAM_SIGNALS_H_
#define WEFT_EXECUTOR_STREAMS_STREAM_SIGNALS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// A device implements it. Streams are native handles (executor/streams/stream.h). All functions
// return at once.
class StreamSignals {
 public:
  // A number, from 0, that the host counts up and streams wait for; wraps around.
  class Counter {
   public:
    virtual ~Counter() = default;
    // From any thread, one at a time. What the host wrote before is visible to the streams that
    // wait for `count`. Makes no call that waits for the device.
    virtual void AdvanceTo(uint32_t count) = 0;

   protected:
    Counter() = default;
  };

  virtual ~StreamSignals() = default;

  // Must outlive the work that waits for it.
  virtual absl::StatusOr<std::unique_ptr<Counter>> NewCounter() = 0;
  // Later work on `stream` starts when the counter has reached `count`.
  virtual absl::Status WaitFor(Counter* counter, uint32_t count, void* stream) = 0;
  // Calls `f` on some thread once the work that was enqueued on `stream` is done, in the order of
  // the calls for that stream. `f` must be short, and must not use the device. Not called if the
  // device fails before: then synchronizing the stream is an error.
  virtual absl::Status CallAfter(void* stream, std::function<void()> f) = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_STREAMS_STREAM_SIGNALS_H_
