// Collectives between GPUs, by NCCL.
#ifndef WEFT_EXECUTOR_GPU_NCCL_COMMUNICATOR_H_
#define WEFT_EXECUTOR_GPU_NCCL_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "executor/communicators/communicator.h"
#include "executor/gpu/gpu_api.h"
#include "executor/gpu/nccl_library.h"

namespace weft {

struct NcclOptions {
  // The file of NCCL's library (executor/gpu/nccl_library.h).
  std::string library = std::string(kNcclFile);
  // By which processes tell each other the ids of rings; empty: by GroupOptions::link.
  std::string id_file;
  // Null in a build without CUDA.
  GpuApi* gpu = CudaApi();
};

// Every rank is a thread, of this process or another, with a separate current CUDA device
// (executor/streams/cuda_stream.h). Get waits for the other ranks of the ring. Calls are enqueued
// on the stream that they name; those of different rings of a rank run one after the other, in the
// order in which it makes them. Element types are those of NCCL (fp16, bf16, fp32, fp64, int8,
// uint8, int32, int64). Ranks that call different collectives are not detected, but may run into
// the deadline: verify the program first.
//
// A thread watches the calls on the devices, and asks NCCL for errors of peers and of the network:
// they abort the run. The times of the options count from when Get is called and, for a collective,
// from when its stream reached it; the run aborts after timeout_s.
//
// Loads NCCL when the first ring is set up. Without NCCL or CUDA, Get is Unavailable: only ranks
// that never communicate can run. Between several processes, NewNcclGroup sets up ids, and returns
// the errors of that (executor/gpu/nccl_ids.h).
absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewNcclGroup(GroupOptions options,
                                                                NcclOptions nccl = {});

}  // namespace weft

#endif  // WEFT_EXECUTOR_GPU_NCCL_COMMUNICATOR_H_
