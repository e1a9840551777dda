// Collectives between GPUs, by NCCL.
#ifndef WEFT_EXECUTOR_NCCL_COMMUNICATOR_H_
#define WEFT_EXECUTOR_NCCL_COMMUNICATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "executor/communicator.h"

namespace weft {

// Every rank is a thread, of this process or another, with a separate current CUDA device
// (executor/cuda_stream.h). Get waits for the other ranks of the ring. Calls are enqueued on the
// stream that they name. Element types are those of NCCL (fp16, bf16, fp32, fp64, int8, uint8,
// int32, int64). Ranks that call different collectives are not detected, but may run into the
// deadline: verify the program first. A thread watches the calls on the devices. The times of the
// options count from when Get is called and, for a collective, from when its stream reached it; the
// run aborts after timeout_s.
//
// In a build without NCCL, Get is Unavailable: only ranks that never communicate can run.
absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewNcclGroup(GroupOptions options);

}  // namespace weft

#endif  // WEFT_EXECUTOR_NCCL_COMMUNICATOR_H_
