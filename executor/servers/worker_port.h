// A worker's end of the parameter servers.
#ifndef WEFT_EXECUTOR_SERVERS_WORKER_PORT_H_
#define WEFT_EXECUTOR_SERVERS_WORKER_PORT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "executor/communicators/row_traffic.h"
#include "executor/servers/server_group.h"
#include "executor/servers/server_traffic.h"
#include "executor/servers/wanted_rows.h"
#include "executor/step/server_port.h"

namespace weft {

// Sends gradients to the servers that hold the parameters, asks for parameters, and waits for them.
// A lookup asks each server once for each of its rows. Sending does not wait.
//
// A lookup with attribute `prefetch` then prefetches the rows that it will need in the next step,
// by the ids of the next batch. Servers send these rows as they are, while this step goes on, and
// once they have updated them, those that have changed. So the lookup of the next step waits for
// these alone. One batch of rows is kept for each such lookup. Where the next batch is not read
// yet, the worker tries again before each push; in the end, the next step pulls its rows.
class WorkerPort : public ServerPort {
 public:
  // The value of a variable of the plan in a later step, if it is known by now (Feeder::Peek).
  using NextFeed =
      std::function<absl::StatusOr<absl::optional<Tensor>>(int64_t step, int variable)>;

  // `group` must outlive this.
  WorkerPort(const ServerGroup& group, int rank, NextFeed next_feed)
      : group_(group),
        rank_(rank),
        next_feed_(std::move(next_feed)),
        traffic_of_servers_(group.num_servers) {}

  // Of the ops that follow.
  void BeginStep(int64_t step);
  // Tells the servers that the worker runs no step from this one on.
  absl::Status End(int64_t step);

  absl::Status Run(const Plan::PlanOp& op, absl::Span<const Tensor* const> inputs,
                   absl::Span<Tensor* const> outputs) override;

  // In all steps.
  const RowTraffic& traffic() const { return traffic_; }
  // In all steps, by server. Answers count once they are used.
  absl::Span<const ServerTraffic> traffic_of_servers() const { return traffic_of_servers_; }
  // The prefetches of the step before that this step has used.
  absl::Span<const PrefetchSpan> prefetches() const { return spans_; }

 private:
  // A pull or a prefetch that a server has not answered in full.
  struct Request {
    int server = 0;
    int64_t key = 0;
    bool is_prefetch = false;
    absl::optional<ServerMessage> reply, changes;
  };
  // The requests of a lookup: by server; -1 where it needs no rows of the server.
  struct Asked {
    int64_t step = 0;  // that needs the rows
    WantedRows wanted;
    std::vector<int64_t> requests;
    std::chrono::steady_clock::time_point begin;
  };

  absl::Status Prefetch(int64_t key);
  absl::Status Pull(int64_t key, Tensor* out);
  absl::Status Lookup(const Plan::PlanOp& op, const Tensor& ids, Tensor* out);
  // Has asked for the rows of the op, or cannot yet.
  absl::StatusOr<bool> PrefetchNext(const Plan::PlanOp& op, const ServedKey& table);
  absl::Status PrefetchLate();
  absl::StatusOr<Asked> AskForRows(ServerMessage::Kind kind, int64_t key, int64_t step,
                                   WantedRows wanted);
  // By server.
  absl::StatusOr<std::vector<Tensor>> AwaitRows(const Asked& asked, const ServedKey& table);
  // The same for a prefetch, up to date.
  absl::StatusOr<std::vector<Tensor>> AwaitPrefetched(const Plan::PlanOp& op, const Asked& asked,
                                                      const ServedKey& table);
  // Copies the rows that have changed into `rows`. Returns how many.
  absl::StatusOr<int64_t> ApplyChanges(const ServerMessage& changes, const ServedKey& table,
                                       Tensor* rows) const;
  absl::Status Push(int64_t key, absl::Span<const Tensor* const> inputs);
  absl::Status PushRows(const ServedKey& served, const ServerMessage& message, const Tensor& grad);
  absl::StatusOr<const ServedKey*> Served(int64_t key) const;
  absl::StatusOr<const ServedKey*> ServedTable(int64_t key) const;
  ServerMessage NewMessage(ServerMessage::Kind kind, int64_t key) const;
  // Sends to a server, and counts.
  absl::Status Send(int server, ServerTraffic::Count ServerTraffic::*count, ServerMessage message);
  // Sends a pull or a prefetch. Returns its number.
  absl::StatusOr<int64_t> Ask(int server, ServerMessage message);
  // Takes in a message of a server.
  absl::Status Keep(ServerMessage message);
  // Waits for the part of the answer to a request, and returns it.
  absl::StatusOr<ServerMessage> Await(int64_t request, absl::optional<ServerMessage> Request::*part,
                                      const ServedKey& served);
  // Waits for the reply, which is a tensor of these dimensions.
  absl::StatusOr<ServerMessage> AwaitTensor(int64_t request, const ServedKey& served,
                                            const Dims& dims);
  absl::Status Unexpected(const ServerMessage& message, const ServedKey& served,
                          const std::string& expected) const;

  const ServerGroup& group_;
  const int rank_;
  const NextFeed next_feed_;
  int64_t step_ = 0;
  int64_t next_request_ = 0;
  std::map<int64_t, int64_t> prefetched_;  // by key: the number of the pull
  std::map<int64_t, Request> requests_;    // by number
  std::map<const Plan::PlanOp*, Asked> prefetched_rows_;
  std::vector<const Plan::PlanOp*> late_;  // lookups of this step that could not prefetch yet
  RowTraffic traffic_;
  std::vector<ServerTraffic> traffic_of_servers_;
  std::vector<PrefetchSpan> spans_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_SERVERS_WORKER_PORT_H_
