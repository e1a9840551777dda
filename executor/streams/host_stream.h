// A stream of the host beside the streams of a device.
#ifndef WEFT_EXECUTOR_STREAMS_HOST_STREAM_H_
#define WEFT_EXECUTOR_STREAMS_HOST_STREAM_H_

#include <memory>

#include "executor/streams/stream.h"

namespace weft {

// `device`, which has signals(), with a stream of the host, which NewHostStream makes: a thread.
// All other streams are those of `device`. Events order them all, except two streams of the host,
// which is an error; and the thread that launches work never waits for it:
//
//   the host's stream awaits the device   an auxiliary stream of the device awaits the event, and
//                                         calls the host when it has fired
//   the device awaits the host's stream   the host counts its records; a stream of the device waits
//                                         for the count
//
// Unless ranks share the device. CUDA does not know what a stream that waits for a count waits for,
// and may keep the work of another rank behind it, for which that rank's host waits. There, the
// thread that launches work waits for the count, and streams wait for work that is enqueued only.
//
// Errors: those of the device poison the host's stream, as everywhere. After an error on the host,
// its events fire, and streams of the device run the work that awaits them, on values that the host
// did not compute: the device cannot skip what is enqueued. Synchronizing the host's stream returns
// the error, so the step fails all the same.
std::unique_ptr<Device> WithHostStream(std::unique_ptr<Device> device,
                                       bool ranks_share_device = false);

}  // namespace weft

#endif  // WEFT_EXECUTOR_STREAMS_HOST_STREAM_H_
