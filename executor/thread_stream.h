// Streams on the host: one thread each.
#ifndef WEFT_EXECUTOR_THREAD_STREAM_H_
#define WEFT_EXECUTOR_THREAD_STREAM_H_

#include <memory>

#include "executor/stream.h"

namespace weft {

// The host as a device. A stream is a thread with an unbounded queue; its tasks run there one after
// the other, truly beside those of other streams, so that a missing wait is a data race that
// ThreadSanitizer reports: nothing but events, Launch and Synchronize orders threads. A Launch
// costs a fraction of a microsecond, and no allocation once the queue has been as long before.
std::unique_ptr<Device> NewHostDevice();

}  // namespace weft

#endif  // WEFT_EXECUTOR_THREAD_STREAM_H_
