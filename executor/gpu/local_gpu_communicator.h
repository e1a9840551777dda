// Collectives between ranks that are threads of one process and share one GPU.
#ifndef WEFT_EXECUTOR_GPU_LOCAL_GPU_COMMUNICATOR_H_
#define WEFT_EXECUTOR_GPU_LOCAL_GPU_COMMUNICATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "executor/communicators/communicator.h"
#include "executor/gpu/gpu_api.h"

namespace weft {

// For programs of several ranks on a machine with one GPU. The host threads of the ranks rendezvous
// at every call and exchange the addresses of their buffers. Then the stream of each rank waits for
// those of the others, reduces its part of the elements for all of them, and waits for the others
// to do theirs. No stream ever waits for work that has not been enqueued, so a rank that fails
// leaves no work behind that does not end.
//
// Sums are left folds in rank order: results have the bits of NewLocalGroup. Errors and warnings
// are those of NewLocalGroup, too; the times of the options count from the arrival of the host
// thread. At most 64 ranks.
//
// Unavailable if `gpu` is null.
absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewLocalGpuGroup(GroupOptions options,
                                                                    GpuApi* gpu = CudaApi());

}  // namespace weft

#endif  // WEFT_EXECUTOR_GPU_LOCAL_GPU_COMMUNICATOR_H_
