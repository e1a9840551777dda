// The arithmetic of collectives whose ranks share one GPU.
#ifndef WEFT_EXECUTOR_GPU_GPU_COLLECTIVE_H_
#define WEFT_EXECUTOR_GPU_GPU_COLLECTIVE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "executor/communicators/communicator.h"

namespace weft {

// RunLocalCollective (executor/communicators/local_collective.h) on a GPU, with the same bits:
// enqueues part `part` of `num_parts` on `stream`. Unimplemented for more than 64 ranks. gcc
// compiles it, too: then it runs on the host.
absl::Status RunGpuCollective(const CollectiveDesc& desc, absl::Span<const void* const> in,
                              absl::Span<void* const> out, int part, int num_parts, void* stream);

}  // namespace weft

#endif  // WEFT_EXECUTOR_GPU_GPU_COLLECTIVE_H_
