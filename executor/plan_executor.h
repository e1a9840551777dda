// Runs a plan on one rank, step by step.
#ifndef WEFT_EXECUTOR_PLAN_EXECUTOR_H_
#define WEFT_EXECUTOR_PLAN_EXECUTOR_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "executor/communicator.h"
#include "executor/plan.h"
#include "executor/rows_all_reduce.h"
#include "executor/scope.h"
#include "executor/stream.h"
#include "executor/value.h"
#include "ops/kernel.h"
#include "ops/tensor.h"

namespace weft {

// What a plan needs to run. All that is pointed to must outlive the executor.
struct PlanExecutorOptions {
  const Plan* plan = nullptr;
  // Where persistable variables live; others live as long as the executor.
  Scope* scope = nullptr;
  Device* device = nullptr;
  // Must have at least the ranks that the plan was built for; may be null where the plan has no
  // rings.
  CommunicatorGroup* group = nullptr;
  int rank = 0;
  RandomState* random = nullptr;
  // A block that is still being run after so long fails: a loop that does not end.
  double timeout_s = 600;
  // Asked before a block is run again: true where the run was aborted. May be empty.
  std::function<bool()> is_given_up;
  // Looks at every floating-point output of every op, and fails at the first NaN or infinity.
  bool check_nan = false;
  // Keep when each op of the last step ran.
  bool trace = false;
  // Called from the stream of an op that failed, at once: so that other ranks need not wait for
  // this one. Ops that were skipped because of it do not come here. May be empty.
  std::function<void(const absl::Status&)> on_error;
};

// When an op ran on its stream: from having all that it waits for until its outputs were there. Of
// a collective, the time that it waited for other ranks is part of it.
struct OpSpan {
  int op;  // of the plan
  std::chrono::steady_clock::time_point begin, end;
};

// Launches the instructions of a plan in order; their work runs on the plan's streams. A step takes
// no string, hash lookup or allocation of its own; tensors allocate where they grow, and loops that
// have a gradient for every round.
//
// Driven by one host thread.
class PlanExecutor {
 public:
  // Makes the kernels and streams. ResourceExhausted where there are no threads left.
  static absl::StatusOr<std::unique_ptr<PlanExecutor>> Create(const PlanExecutorOptions& options);
  ~PlanExecutor();
  PlanExecutor(const PlanExecutor&) = delete;
  PlanExecutor& operator=(const PlanExecutor&) = delete;

  // A variable of the plan, to be written and read between steps.
  Tensor* tensor(int variable) { return tensors_[variable]; }
  absl::Span<Tensor* const> tensors() const { return tensors_; }

  // One step: returns when all streams are idle. The error of an op begins with its name and, on
  // the compute stream in a loop, the round of that; the codes are those of kernels and
  // communicators, and
  //   FailedPrecondition  an input holds nothing, or holds SelectedRows where the plan expects a
  //                       dense tensor; or, with check_nan, an output is not finite
  //   DeadlineExceeded    a block does not come to its end, as a loop without one
  // After an error every later step fails.
  absl::Status RunStep();

  // By stream of the plan, in order: the ops of the last step. Empty where they are not traced.
  absl::Span<const std::vector<OpSpan>> spans() const { return spans_; }

 private:
  // An op of the plan with its variables looked up.
  struct BoundOp {
    const Plan::PlanOp* op;
    int stream = 0;
    Kernel kernel;  // empty for a collective
    std::vector<const Tensor*> inputs;
    std::vector<Tensor*> outputs;
    // Of an op that moves values.
    std::vector<const Value*> input_values;
    std::vector<Value*> output_values;
    Communicator* communicator = nullptr;  // of a collective
    std::unique_ptr<RowsAllReduce> rows;   // of a collective on SelectedRows
    // What a collective reads whose output, of other dims, takes the place of its input.
    std::unique_ptr<Tensor> input_copy;
  };

  // A branch whose block is being run.
  struct Frame {
    int branch;  // of the plan
    int64_t rounds;
    std::chrono::steady_clock::time_point start;
  };

  explicit PlanExecutor(const PlanExecutorOptions& options) : options_(options) {}
  absl::Status Bind();
  absl::Status LaunchAll();
  absl::StatusOr<int> Enter(int branch);
  absl::StatusOr<int> EndBlock();
  absl::StatusOr<bool> Holds(const Plan::Branch& branch);
  absl::StatusOr<bool> ReadCondition(const Plan::Branch& branch) const;
  void NoteRound();
  absl::Status Failed(absl::string_view op, const absl::Status& status) const;
  absl::Status CheckProgress() const;
  absl::Status RunOp(int index);
  absl::Status TraceOp(int index);
  absl::Status TryOp(const BoundOp& bound) const;
  absl::Status RunControl(const BoundOp& bound) const;
  absl::Status RunCollective(const BoundOp& bound) const;
  absl::Status CheckInputs(const BoundOp& bound) const;
  absl::Status CheckFinite(const BoundOp& bound) const;

  const PlanExecutorOptions options_;
  std::deque<Value> local_;                   // variables that do not outlive the executor
  std::vector<Value*> values_;                // by variable of the plan
  std::vector<Tensor*> tensors_;              // of them
  std::vector<Communicator*> communicators_;  // by ring of the plan
  std::vector<BoundOp> ops_;                  // by op of the plan
  std::vector<Frame> frames_;                 // of this step, from the outermost in
  // The innermost of them that is a loop; changes while the compute stream is idle, and is for its
  // ops to read. No branch: none.
  Frame loop_ = {-1, 0, {}};
  std::vector<std::vector<OpSpan>> spans_;  // each is written by its stream
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<std::unique_ptr<Stream>> streams_;  // goes before all that their tasks use
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_EXECUTOR_H_
