// How threads of the host and CUDA streams wait for each other: in builds with CUDA only.
#ifndef WEFT_EXECUTOR_STREAMS_CUDA_SIGNALS_H_
#define WEFT_EXECUTOR_STREAMS_CUDA_SIGNALS_H_

#include "executor/streams/stream_signals.h"

namespace weft {

// Of the current device of the calling thread. A stream waits for a counter by
// cuStreamWaitValue32, which occupies no multiprocessor. NewCounter: Unavailable if the driver does
// not have that function.
StreamSignals* CudaSignals();

}  // namespace weft

#endif  // WEFT_EXECUTOR_STREAMS_CUDA_SIGNALS_H_
