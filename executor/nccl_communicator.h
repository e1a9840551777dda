// Collectives between GPUs of one process, by NCCL.
#ifndef WEFT_EXECUTOR_NCCL_COMMUNICATOR_H_
#define WEFT_EXECUTOR_NCCL_COMMUNICATOR_H_

#include <functional>
#include <memory>
#include <string>

#include "executor/communicator.h"

namespace weft {

struct NcclGroupOptions {
  int nranks = 1;
  // A rank that does not come to a ring, or to a call, is told of after so long, once per call, ...
  double warn_after_s = 60;
  // ... and ends the run after so long. Of a call, both count from when its stream has come to it.
  double timeout_s = 600;
  // Called from any thread; may be empty.
  std::function<void(const std::string&)> warn;
};

// Ranks are threads, each with a CUDA device of its own current (executor/cuda_stream.h). Get waits
// for the other ranks. Calls are enqueued on the stream that they name; element types are those of
// NCCL (fp16, bf16, fp32, fp64, int8, uint8, int32, int64). Ranks that call different collectives
// are not found out, but may come to the deadline: verify the program. A thread watches the calls
// on the devices.
//
// In a build without NCCL Get is Unavailable: ranks that meet nowhere run.
std::unique_ptr<CommunicatorGroup> NewNcclGroup(NcclGroupOptions options);

}  // namespace weft

#endif  // WEFT_EXECUTOR_NCCL_COMMUNICATOR_H_
