// A worker's end of the parameter servers.
#ifndef WEFT_EXECUTOR_WORKER_PORT_H_
#define WEFT_EXECUTOR_WORKER_PORT_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "executor/server_group.h"
#include "executor/server_port.h"

namespace weft {

// Sends gradients to the servers that hold the parameters, asks for parameters, and waits for them.
// A lookup asks each server once for each of its rows. Sending does not wait.
class WorkerPort : public ServerPort {
 public:
  // `group` must outlive this.
  WorkerPort(const ServerGroup& group, int rank) : group_(group), rank_(rank) {}

  // Of the ops that follow.
  void BeginStep(int64_t step) { step_ = step; }
  // Tells the servers that the worker runs no step from this one on.
  absl::Status End(int64_t step);

  absl::Status Run(const Plan::PlanOp& op, absl::Span<const Tensor* const> inputs,
                   absl::Span<Tensor* const> outputs) override;

 private:
  absl::Status Prefetch(int64_t key);
  absl::Status Pull(int64_t key, Tensor* out);
  absl::Status Lookup(const Plan::PlanOp& op, const Tensor& ids, Tensor* out);
  absl::Status Push(int64_t key, absl::Span<const Tensor* const> inputs);
  absl::Status PushRows(const ServedKey& served, const ServerMessage& message, const Tensor& grad);
  absl::StatusOr<const ServedKey*> Served(int64_t key) const;
  ServerMessage NewMessage(ServerMessage::Kind kind, int64_t key) const;
  // Sends a pull. Returns its number.
  absl::StatusOr<int64_t> Ask(int server, ServerMessage pull);
  // Waits for the reply to a pull, and returns its tensor.
  absl::StatusOr<Tensor> Await(int64_t request, int server, const ServedKey& served);

  const ServerGroup& group_;
  const int rank_;
  int64_t step_ = 0;
  int64_t next_request_ = 0;
  std::map<int64_t, int64_t> prefetched_;  // by key: the number of the pull
  std::map<int64_t, Tensor> replies_;      // by number
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_WORKER_PORT_H_
