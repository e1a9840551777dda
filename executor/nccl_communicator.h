// Collectives between GPUs of one process, by NCCL.
#ifndef WEFT_EXECUTOR_NCCL_COMMUNICATOR_H_
#define WEFT_EXECUTOR_NCCL_COMMUNICATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "executor/communicator.h"

namespace weft {

// Ranks are threads, each with a CUDA device of its own current. Calls are enqueued on the stream
// that they name, and return at once; element types are those of NCCL (fp16, bf16, fp32, fp64,
// int8, uint8, int32, int64). Ranks that call different collectives are not found out: verify the
// program. Unavailable in a build without NCCL.
absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewNcclGroup(int nranks);

}  // namespace weft

#endif  // WEFT_EXECUTOR_NCCL_COMMUNICATOR_H_
