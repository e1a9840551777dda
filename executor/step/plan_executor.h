// Runs a plan on one rank, step by step.
#ifndef WEFT_EXECUTOR_STEP_PLAN_EXECUTOR_H_
#define WEFT_EXECUTOR_STEP_PLAN_EXECUTOR_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "executor/communicators/communicator.h"
#include "executor/plan/plan.h"
#include "executor/plan/scope.h"
#include "executor/step/bound_step.h"
#include "executor/step/op_runner.h"
#include "executor/step/server_port.h"
#include "executor/step/step_graph.h"
#include "executor/streams/stream.h"
#include "ops/kernel.h"
#include "ops/tensor.h"

namespace weft {

// Ops of a plan, by index.
struct OpRange {
  int begin = 0;
  int end = 0;
};

// What a plan needs to run. All pointers must outlive the executor.
struct PlanExecutorOptions {
  const Plan* plan = nullptr;
  // Holds persistable variables; others live as long as the executor. Those that lie in another
  // memory than the plan says are moved.
  Scope* scope = nullptr;
  // Of a plan on two devices, the accelerator, which also makes the stream of the host
  // (Device::NewHostStream).
  Device* device = nullptr;
  // That of the host; only for a plan on two devices.
  Memory* host_memory = nullptr;
  // Must have at least as many ranks as the plan was built for; may be null if the plan has no
  // rings.
  CommunicatorGroup* group = nullptr;
  int rank = 0;
  RandomState* random = nullptr;
  // KernelContext::place, which may change between steps. May be null.
  const std::string* place = nullptr;
  // A block that runs longer than this fails: an endless loop.
  double timeout_s = 600;
  // Checked before a block runs again: true if the run was aborted. May be empty.
  std::function<bool()> is_aborted;
  // Variables that are read or written between steps, besides persistable ones. Others share memory
  // with each other.
  std::vector<int> accessed;
  // On which kernels compute (ops/threads.h), the one that calls RunStep included.
  int threads = 1;
  // Checks every floating-point output of every op, and fails at the first NaN or infinity.
  bool check_nan = false;
  // Record when the ops of the last step ran, and when streams waited for each other.
  bool trace = false;
  // Whether steps run as graphs of the device. Steps that are traced or checked do not.
  GraphMode graph = GraphMode::kOff;
  // Of a worker or a parameter server; null: the plan has no ops between them.
  ServerPort* servers = nullptr;
  // Which ops run next in a step; none: the step is done. For a plan of one stream without blocks,
  // whose values of a step do not pass from one range to another (executor/servers/key_sections.h).
  // Empty: all ops run, in order.
  std::function<absl::StatusOr<absl::optional<OpRange>>()> next_ops;
  // Called immediately from the stream of an op that failed, so that other ranks need not wait for
  // this one; for an op of the host beside a device, at the end of the step. Not called for ops
  // that are skipped because of it. May be empty.
  std::function<void(const absl::Status&)> on_error;
};

// When ops ran on their stream: from the end of its waits until their outputs were ready. The span
// of a collective includes waiting for other ranks.
struct OpSpan {
  int op;  // of the plan; of several that run together, the first one
  std::chrono::steady_clock::time_point begin, end;
  // Of inputs; for a collective, what the rank passes to it.
  int64_t bytes = 0;
  // If several ops ran together, as a chain or a group: all of them, in order; of a chain, with the
  // time of each.
  std::vector<int> parts = {};
  std::vector<std::chrono::steady_clock::duration> times = {};

  // Calls visit(op, time) for the ops with known times; for the first one of a group with all of
  // its time.
  template <typename Visit>
  void VisitTimes(Visit visit) const {
    if (times.empty()) visit(op, end - begin);
    for (size_t i = 0; i < times.size(); ++i) visit(parts[i], times[i]);
  }
};

// When a stream waited for another one.
struct WaitSpan {
  int from;  // the stream that it waited for
  // It waited for the first so many ops of that stream in the step.
  int64_t num_ops;
  std::chrono::steady_clock::time_point begin, end;
};

// The memory of the values of a rank, in bytes.
struct ValueMemory {
  // Of values between steps: persistable, fed and fetched variables; and of others that the arena
  // does not hold, such as those of blocks.
  int64_t kept = 0;
  // Of the arena, which the other values of a step share; and the most of them that live at once.
  int64_t arena = 0;
  int64_t live = 0;
  // Of a plan on two devices, those above are in the memory of the accelerator; and these in that
  // of the host.
  bool on_two_devices = false;
  int64_t host_kept = 0, host_arena = 0, host_live = 0;
};

// Launches the instructions of a plan in order; their work runs on the plan's streams. When feeds
// have other types than before, the step is bound to them (executor/step/bound_step.h). A bound
// step checks no types and resizes nothing, except in ops whose types depend on values, in blocks,
// and in ops that move values.
//
// Driven by one host thread.
class PlanExecutor {
 public:
  // Makes the kernels and streams. ResourceExhausted if no thread is available.
  static absl::StatusOr<std::unique_ptr<PlanExecutor>> Create(const PlanExecutorOptions& options);
  ~PlanExecutor();
  PlanExecutor(const PlanExecutor&) = delete;
  PlanExecutor& operator=(const PlanExecutor&) = delete;

  // The variables of the plan, for access between steps: only persistable ones, and those of
  // PlanExecutorOptions::accessed.
  Tensor* tensor(int variable) { return resources_.tensors[variable]; }
  absl::Span<Tensor* const> tensors() const { return resources_.tensors; }

  // Gives the values of a step their types and memory, as RunStep does, and runs nothing.
  // ResourceExhausted if they do not fit in memory.
  absl::Status Bind();

  // Runs one step. Returns when all streams are idle. The error of an op begins with its name and,
  // on the compute stream in a loop, the iteration. Codes are those of kernels and communicators,
  // and
  //   FailedPrecondition  an input has no value, or is SelectedRows where the plan expects a dense
  //                       tensor; or, with check_nan, an output is not finite
  //   ResourceExhausted   the values of the step do not fit in memory
  //   DeadlineExceeded    a block does not end, as in an endless loop
  // After an error every later step fails.
  absl::Status RunStep();

  // After the last step, or after Bind. Workspaces of kernels do not count.
  ValueMemory memory() const;

  const GraphUse& graph_use() const { return graph_->use(); }

  // By stream of the plan, in order: the ops of the last step. Empty without tracing.
  absl::Span<const std::vector<OpSpan>> spans() const { return spans_; }
  // By stream that waits, in order: the waits of the last step for events. Empty without tracing,
  // and on streams that mark times (Stream::MarksTimes).
  absl::Span<const std::vector<WaitSpan>> waits() const { return waits_; }

 private:
  // A branch whose block is running.
  struct RunningBlock {
    int branch;  // of the plan
    int64_t iterations;
    std::chrono::steady_clock::time_point start;
  };

  explicit PlanExecutor(const PlanExecutorOptions& options)
      : options_(options), accesses_(*options.plan) {}
  absl::Status Init();
  absl::Status MakeFault();
  absl::Status CheckFault() const;
  absl::Status CheckCollectives() const;
  void PinValues();
  void FindEarlyCopies();
  absl::Status BindVariables();
  int64_t KeptBytes(DeviceKind device) const;
  void BindStep();
  absl::Status RegisterBuffers();
  absl::Status UnregisterBuffers();
  bool IsInArena(const Tensor& tensor) const;
  std::string GraphObstacle() const;
  absl::Status Launch();
  absl::Status LaunchAll();
  absl::Status LaunchRanges();
  // Of the bound step.
  absl::Status LaunchCalls(int begin, int end);
  void LaunchOps(int begin, int end);
  absl::StatusOr<int> Enter(int branch);
  absl::StatusOr<int> EndBlock();
  absl::StatusOr<bool> Holds(const Plan::Branch& branch);
  absl::StatusOr<bool> ReadCondition(const Plan::Branch& branch) const;
  void TrackIteration();
  absl::Status Failed(absl::string_view op, const absl::Status& status) const;
  absl::Status CheckProgress() const;
  const std::string& NameOf(int variable) const { return options_.plan->variables[variable].name; }
  absl::Status RunOps(int begin, int end);
  absl::Status RunOp(StepCall* call, OpTimes* times);
  void LaunchTracedWait(int stream, int event);
  absl::Status ReadMarkedTimes();

  const PlanExecutorOptions options_;
  const PlanAccesses accesses_;
  std::deque<Value> local_;  // variables that do not outlive the executor
  StepResources resources_;
  // Bound to different types. The last ones that were used, at the end the very last.
  std::vector<std::unique_ptr<BoundStep>> steps_;
  BoundStep* step_ = nullptr;  // the one that the variables have the types of
  // Of the bound step, with communicators (Communicator::Register).
  std::vector<std::pair<Communicator*, void*>> registered_;
  StepArenas arenas_;
  std::vector<RunningBlock> frames_;  // in this step, outermost first
  // The innermost of them that is a loop, for its ops to read. Changes only while the compute
  // stream is idle. No branch: none.
  RunningBlock loop_ = {-1, 0, {}};
  std::vector<std::vector<OpSpan>> spans_;    // each is written by its own stream
  std::vector<std::vector<WaitSpan>> waits_;  // likewise
  // While a traced step is launched: by stream, the ops that have been launched; by event, where it
  // was recorded, and how many ops of that stream came before.
  std::vector<int64_t> num_launched_;
  struct Record {
    int stream = 0;
    int64_t num_ops = 0;
  };
  std::vector<Record> records_;
  std::vector<std::vector<OpSpan>> marked_;  // by stream: between two marks (Stream::MarkTime)
  // Of a plan on two devices, one of which only enqueues work: the stream of the other, the host,
  // whose thread does it. -1: none.
  int host_thread_ = -1;
  // By variable of the host: its page-locked memory, while it has that.
  std::vector<const void*> pinned_;
  std::vector<std::unique_ptr<Event>> events_;
  absl::optional<OpRunner> ops_;                  // on the streams
  absl::optional<StepGraph> graph_;               // of the streams
  std::vector<const void*> addresses_;            // of what may move, in this step
  std::vector<std::unique_ptr<Stream>> streams_;  // destroyed before everything that its tasks use
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_PLAN_EXECUTOR_H_
