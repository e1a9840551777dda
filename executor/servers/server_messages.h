// How messages between workers and parameter servers arrive.
#ifndef WEFT_EXECUTOR_SERVERS_SERVER_MESSAGES_H_
#define WEFT_EXECUTOR_SERVERS_SERVER_MESSAGES_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "executor/communicators/world.h"
#include "executor/jobs/job_link.h"
#include "executor/servers/server_links.h"
#include "executor/servers/server_message.h"

namespace weft {

// The messages of one rank, in the order in which they came. Nobody polls. Thread-safe.
class ServerMailbox {
 public:
  void Put(ServerMessage message);

  // Waits for a message. None after `seconds`, if that is given. After Abort, its status.
  absl::StatusOr<absl::optional<ServerMessage>> Take(absl::optional<double> seconds);

  // Releases who waits, now and later. Only the first call counts.
  void Abort(const absl::Status& status);

 private:
  std::mutex mutex_;
  std::condition_variable has_changed_;
  std::deque<ServerMessage> messages_;
  absl::Status status_;
};

// Delivers messages to the ranks of this process, and over the link to those of others.
// Thread-safe.
class ServerPost {
 public:
  // `world`: of workers and servers. The link, which may be null, must outlive this.
  ServerPost(const World& world, JobLink* link, ServerLinks direct = {});
  ~ServerPost();

  // Returns at once. Messages from one rank to another arrive in order. The errors of a device.
  // Bytes of another process that are no message, or none for this process, are Internal for all
  // ranks of this process that wait for messages, now or later.
  absl::Status Send(int to, ServerMessage message);

  // Of a rank of this process.
  ServerMailbox* mailbox(int rank) { return mailboxes_[rank - world_.first].get(); }

  void Abort(const absl::Status& status);

 private:
  void ListenTo(JobLink* link, const std::function<int(int)>& process_of);

  const World world_;
  JobLink* const link_;
  std::vector<std::unique_ptr<ServerMailbox>> mailboxes_;
  const ServerLinks direct_;  // after what its handlers use
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_SERVERS_SERVER_MESSAGES_H_
