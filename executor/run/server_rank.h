// One parameter server of a run.
#ifndef WEFT_EXECUTOR_RUN_SERVER_RANK_H_
#define WEFT_EXECUTOR_RUN_SERVER_RANK_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/plan/scope.h"
#include "executor/run/run_job.h"
#include "executor/servers/key_sections.h"
#include "executor/servers/served_rows.h"
#include "executor/servers/server_checks.h"
#include "executor/servers/server_part.h"
#include "executor/servers/server_traffic.h"
#include "executor/step/plan_executor.h"
#include "executor/step/server_port.h"
#include "executor/streams/stream.h"
#include "ops/merge_rows.h"

namespace weft {

// Its parameters, and the work of its thread: the server's part of the servers' program, once in
// each step, or, if updates do not wait for all workers, once for each worker in each step.
//
// One thread does all. A section of the program (executor/servers/key_sections.h) runs as soon as
// the gradients of its keys are complete, in whatever order they come. Until then the thread
// answers who asks for parameters; while a section runs it does not, so that nobody sees a half of
// an update. Gradients are merged in the order of the workers, with the bits of an all-reduce.
//
// Rows that a worker prefetches for its next step are sent at once. After the update of this step,
// or with asynchronous updates that by the worker's own gradient, follow those that have changed.
//
// Messages are checked when they come (executor/servers/server_checks.h).
class ServerRank : public ServerPort {
 public:
  // Server `index` of the job.
  ServerRank(RunJob* job, int index);

  // Runs all steps. Errors go to the failures of the job.
  void RunAll();

  absl::Status Run(const Plan::PlanOp& op, absl::Span<const Tensor* const> inputs,
                   absl::Span<Tensor* const> outputs) override;

  // What it holds after the last step, by name; rows by names that JoinParts knows. State that
  // has no rows, such as powers of beta, is equal on all servers.
  absl::StatusOr<std::map<std::string, Tensor>> Held();

  int index() const { return index_; }
  // After the last step.
  ServerMemory memory();

 private:
  // Of a key that this server holds.
  struct KeyState {
    Tensor* param = nullptr;
    int64_t num_updates = 0;                        // the step before which the parameter is
    std::vector<std::deque<ServerMessage>> pushes;  // by worker
    int num_pushed = 0;                             // workers of which there are pushes
    std::deque<int> order;                          // the workers of `pushes`, as they came
    std::vector<int64_t> next_push;                 // by worker: the step of its next push
    std::vector<int64_t> applied;                   // by worker: the step after its last update
    int last_worker = -1;                           // whose gradient came last
    std::deque<ServerMessage> waiting;              // pulls
    // Whose changes are not sent yet: at most a batch of rows of each lookup of each worker, which
    // prefetches for one step ahead.
    std::vector<PrefetchedRows> prefetched;
    ExpectedMessages expected;
  };

  absl::Status RunThread();
  absl::Status Prepare();
  absl::Status SetStartValues();
  absl::Status RunStartupPart(const Program& program, Scope* scope);
  // Keeps of a variable what this server holds.
  absl::Status KeepPart(const std::string& name, const Tensor& whole);
  absl::Status SetFromCheckpoint();
  absl::Status RunSteps();
  absl::Status GiveState();
  // Waits until a gradient of this step has come. False: all workers have ended.
  absl::StatusOr<bool> WaitForStep();
  bool HasEnded() const;

  absl::Status Handle(ServerMessage message);
  // Waits until a section can run. None: the step is done.
  absl::StatusOr<absl::optional<OpRange>> NextSection();
  absl::Status WaitForSection();
  // For whom it waits.
  std::string WaitText() const;
  absl::Status Receive(const Plan::PlanOp& op, absl::Span<Tensor* const> outputs);
  ServerMessage TakePush(int64_t key, int worker);
  absl::Status Serve(int64_t key);
  bool IsComplete(const KeyState& state) const;
  bool IsAnswered(const KeyState& state, const ServerMessage& pull) const;
  absl::Status Answer(const KeyState& state, const ServerMessage& pull);
  absl::Status AnswerPrefetch(KeyState* state, ServerMessage prefetch);
  bool IsFinal(const KeyState& state, const ServerMessage& prefetch) const;
  absl::Status SendChanges(KeyState* state);
  absl::Status ExpectMessages();
  absl::Status CheckMessage(const ServerMessage& message) const;

  RunJob& job_;
  const int index_, rank_;
  int64_t step_;
  std::unique_ptr<Device> device_;  // destroyed after everything in its memory
  RandomState random_;
  Scope scope_;
  absl::optional<ServerPart> part_;
  absl::optional<Plan> plan_;
  std::vector<StateVariable> state_;
  std::unique_ptr<PlanExecutor> executor_;
  std::map<int64_t, KeyState> keys_;
  absl::optional<SectionQueue> sections_;
  int running_ = -1;  // a section
  bool is_async_ = false;
  int64_t num_pushes_ = 0;  // of all keys, that wait
  // Of pushes that wait, and of copies of prefetched rows.
  struct Bytes {
    int64_t now = 0, most = 0;
    void Add(int64_t bytes) { most = std::max(most, now += bytes); }
  };
  Bytes push_bytes_, prefetched_bytes_;
  std::map<int, int64_t> ended_;  // by worker: its end
  RowMerger merger_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_SERVER_RANK_H_
