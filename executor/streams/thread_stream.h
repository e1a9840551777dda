// Streams on the host: threads.
#ifndef WEFT_EXECUTOR_STREAMS_THREAD_STREAM_H_
#define WEFT_EXECUTOR_STREAMS_THREAD_STREAM_H_

#include <memory>

#include "executor/streams/stream.h"

namespace weft {

// The host as a device. A stream is a thread with an unbounded queue. Its tasks run there in order,
// concurrently with those of other streams. A missing wait is a data race that ThreadSanitizer
// reports: only events, Launch and Synchronize order threads. A Launch costs a fraction of a
// microsecond, and does not allocate once the queue has reached its length.
//
// The compute stream has no thread: its tasks run in Flush and Synchronize.
//
// `memory` is the device's; the host can access it. It must outlive the device.
std::unique_ptr<Device> NewHostDevice(Memory* memory = HostMemory());

}  // namespace weft

#endif  // WEFT_EXECUTOR_STREAMS_THREAD_STREAM_H_
