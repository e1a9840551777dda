// How a worker or a parameter server waits for messages.
#ifndef WEFT_EXECUTOR_SERVERS_SERVER_WAIT_H_
#define WEFT_EXECUTOR_SERVERS_SERVER_WAIT_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "executor/servers/server_group.h"

namespace weft {

// Takes messages of the mailbox and gives them to `handle`, until `is_done`. After
// ServerGroup::warn_after_s without being done, warns once; after timeout_s, DeadlineExceeded.
// `what` says for what it waits: "rank 4 waits for the gradient of w from rank 1, step 3".
absl::Status WaitForMessages(const ServerGroup& group, ServerMailbox* mailbox,
                             const std::function<bool()>& is_done,
                             const std::function<absl::Status(ServerMessage)>& handle,
                             const std::function<std::string()>& what);

}  // namespace weft

#endif  // WEFT_EXECUTOR_SERVERS_SERVER_WAIT_H_
