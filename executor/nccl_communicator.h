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
  // A rank that is late for a ring, or for a call, is reported after this time, once per call.
  double warn_after_s = 60;
  // After this time, the run aborts. For a call, both times count from when its stream reached it.
  double timeout_s = 600;
  // Called from any thread; may be empty.
  std::function<void(const std::string&)> warn;
};

// Ranks are threads, each with a separate current CUDA device (executor/cuda_stream.h). Get waits
// for the other ranks. Calls are enqueued on the stream that they name. Element types are those of
// NCCL (fp16, bf16, fp32, fp64, int8, uint8, int32, int64). Ranks that call different collectives
// are not detected, but may run into the deadline: verify the program first. A thread watches the
// calls on the devices.
//
// In a build without NCCL, Get is Unavailable: only ranks that never communicate can run.
std::unique_ptr<CommunicatorGroup> NewNcclGroup(NcclGroupOptions options);

}  // namespace weft

#endif  // WEFT_EXECUTOR_NCCL_COMMUNICATOR_H_
