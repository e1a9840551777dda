// One rank of a run.
#ifndef WEFT_EXECUTOR_RUN_RANK_RUNNER_H_
#define WEFT_EXECUTOR_RUN_RANK_RUNNER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "executor/plan/plan.h"
#include "executor/plan/scope.h"
#include "executor/run/run_job.h"
#include "executor/servers/worker_port.h"
#include "executor/step/plan_executor.h"
#include "executor/streams/stream.h"
#include "ops/kernel.h"

namespace weft {

// Its variables and generators, and the work of its host thread.
class RankRunner {
 public:
  static constexpr int64_t kStartup = -1;  // as a step

  // A rank of this process.
  RankRunner(RunJob* job, int rank)
      : job_(*job), rank_(rank), random_(RandomState::Seeded(job->options.seed, rank)) {
    if (job->post != nullptr) servers_.emplace(job->servers, rank, NextFeed());
  }

  // Runs all steps. Errors go to the failures of the job.
  void Run();

  Scope* scope() { return &scope_; }
  // After the last step.
  const ValueMemory& memory() const { return memory_; }
  const GraphUse& graph_use() const { return graph_use_; }
  const RowTraffic& row_traffic() const { return row_traffic_; }
  const std::vector<ServerTraffic>& server_traffic() const { return server_traffic_; }

 private:
  WorkerPort::NextFeed NextFeed();
  absl::Status RunAll();
  // With servers, drops values that only these need.
  absl::Status RunStartup();
  // Those that servers hold stay out. Parts of buffers stay parts, and count more than the buffer.
  // Those that the main program declares in half precision and the startup program makes as fp32,
  // as Paddle's amp_init does.
  absl::Status CastParameters();
  absl::Status SetValues(const std::map<std::string, Tensor>& values);
  // What `whole` has of tensors of which ranks have parts.
  absl::Status SetShares(const std::map<std::string, Tensor>& whole);
  absl::Status MakeDevices();
  // Those of the main program, on the host.
  absl::Status TestCollectives();
  bool RunsOnAccelerator(const Plan& plan) const;
  absl::Status Resume();
  absl::Status RunSteps(PlanExecutor* executor);
  // Of the startup program: one gets the values of the other. `all`: also where the main program
  // does not read it.
  absl::Status CopyBuffers(bool all);
  // Of a persistable variable of the main program; nullptr: there is none.
  Tensor* TensorOf(const std::string& name);
  absl::StatusOr<RankState> StateBetweenSteps(PlanExecutor* executor);
  absl::Status KeepState(PlanExecutor* executor);
  // Waits for all ranks.
  absl::Status GiveState(PlanExecutor* executor);
  // Sets what persistable variables have between two steps. Parts of buffers count more than the
  // buffer.
  absl::Status TakeState(PlanExecutor* executor, const std::map<std::string, Tensor>& values);
  // As often as RunOptions::control orders it, until it orders a step or the end.
  absl::Status FollowOrders(PlanExecutor* executor);
  // Warns if the startup program leaves a persistable variable with another value than on rank 0.
  // The run goes on: the main program may mean that.
  absl::Status CompareStartValues();
  absl::StatusOr<std::unique_ptr<PlanExecutor>> NewExecutor(const Plan& plan);
  absl::Status RunStep(PlanExecutor* executor);
  absl::Status SetFeedback(PlanExecutor* executor);
  absl::Status ReportTrace(const PlanExecutor& executor);
  // Whether or not they are fetched.
  absl::Status CheckLosses(PlanExecutor* executor) const;

  RunJob& job_;
  const int rank_;
  // Read by the streams in on_error; written while they are idle.
  int64_t step_ = kStartup;
  int64_t num_orders_ = 0;  // carried out, of RunOptions::control
  std::string place_;       // of the step
  // Destroyed after everything in their memory. Of a main program on two devices, the host, and
  // the accelerator; otherwise only the first.
  std::unique_ptr<Device> device_, accelerator_;
  RandomState random_;
  Scope scope_;
  absl::optional<WorkerPort> servers_;  // none: the run has no parameter servers
  ValueMemory memory_;
  GraphUse graph_use_;
  RowTraffic row_traffic_;
  std::vector<ServerTraffic> server_traffic_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_RANK_RUNNER_H_
