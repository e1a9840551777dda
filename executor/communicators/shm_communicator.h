// Collectives between ranks of several processes of one host, through memory that they share.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_SHM_COMMUNICATOR_H_
#define WEFT_EXECUTOR_COMMUNICATORS_SHM_COMMUNICATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "executor/communicators/communicator.h"

namespace weft {

// The same calls with the same bits and messages as those of NewLocalGroup. Each process has a
// segment for its tensors (host_memory()), which all others map: ranks work on each other's tensors
// where they lie. Buffers elsewhere are copied, but for small calls.
//
// Called by all processes of options.link at once, with the same rings. A process that is killed
// leaves nothing behind; the others wait for it until the link tells, and Abort is called, or until
// the timeout.
//   FailedPrecondition  no link, several hosts, other rings in another process, or the processes
//                       cannot map each other's memory; the same in all processes
//   ResourceExhausted   no memory or no address space for segments
//   otherwise           errors of the link
absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewShmGroup(GroupOptions options);

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_SHM_COMMUNICATOR_H_
