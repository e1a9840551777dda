// Collectives between processes that Gloo connects by TCP.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_GLOO_COMMUNICATOR_H_
#define WEFT_EXECUTOR_COMMUNICATORS_GLOO_COMMUNICATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "executor/communicators/communicator.h"

namespace weft {

// The collectives of NewMessageGroup over messages of Gloo, with a TCP connection between each two
// ranks of a ring. Processes learn each other's addresses over the link: the loopback if all share
// one network, otherwise what ChooseAddress finds (executor/jobs/host_address.h).
//
//   Unimplemented       this build has no Gloo
//   FailedPrecondition  processes have different rings
//   Unavailable         there is no Gloo, a process has no address, or a connection fails
//   DeadlineExceeded    a process does not connect
absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewGlooGroup(GroupOptions options);

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_GLOO_COMMUNICATOR_H_
