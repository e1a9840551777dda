// Collectives between processes that mpirun has started.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_MPI_COMMUNICATOR_H_
#define WEFT_EXECUTOR_COMMUNICATORS_MPI_COMMUNICATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "executor/communicators/communicator.h"

namespace weft {

// The collectives of NewMessageGroup over messages of MPI: a communicator per ring, non-blocking
// calls, and a loop that waits, so that timeouts and aborts end a call. Needs an MpiSession, which
// must outlive the group; the processes of the link must be those of MPI, in the same order.
//
// MPI cannot take back a message to a process that has gone. After a call that ends without its
// messages, the group calls MPI no more, so that nothing writes to the buffers; its other rings
// fail, and the session must not end but by MPI_Abort.
//
//   Unavailable         there is no OpenMPI (LoadMpi)
//   FailedPrecondition  no session; processes of MPI and of the link differ, or their rings do
//   DeadlineExceeded    a process does not set up the rings
absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewMpiGroup(GroupOptions options);

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_MPI_COMMUNICATOR_H_
