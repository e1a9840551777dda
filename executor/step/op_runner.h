// Runs the ops of a bound step, one at a time.
#ifndef WEFT_EXECUTOR_STEP_OP_RUNNER_H_
#define WEFT_EXECUTOR_STEP_OP_RUNNER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "executor/step/bound_step.h"
#include "executor/step/server_port.h"
#include "executor/step/step_resources.h"
#include "executor/streams/stream.h"
#include "ops/tensor.h"

namespace weft {

// The value of a condition. InvalidArgument, naming slot and variable: not one bool.
absl::StatusOr<bool> ReadBool(absl::string_view slot, const std::string& variable,
                              const Tensor& tensor);

// What a task of a stream does for an op: runs its kernel, or communicates, copies between two
// memories, or moves values. Errors do not name the op; codes are those of
// PlanExecutor::RunStep.
class OpRunner {
 public:
  // Everything must outlive the runner.
  struct Options {
    const StepResources* resources = nullptr;
    Device* device = nullptr;
    absl::Span<const std::unique_ptr<Stream>> streams;  // of the plan
    int host_thread = -1;  // the stream whose thread does its work beside a device; -1: none
    ServerPort* servers = nullptr;  // null: there are none
    bool check_nan = false;
  };
  explicit OpRunner(const Options& options) : options_(options) {}

  absl::Status Run(BoundOp* bound) const;

 private:
  absl::Status RunUnbound(BoundOp* bound) const;
  void GiveTypeToZeros(const BoundOp& bound) const;
  absl::Status RunControl(BoundOp* bound) const;
  absl::Status RunServerOp(const BoundOp& bound) const;
  absl::Status RunCollective(const BoundOp& bound) const;
  absl::Status RunMessage(const BoundOp& bound) const;
  absl::Status RunInGroup(const BoundOp& bound) const;
  absl::Status CheckInputs(const BoundOp& bound) const;
  absl::Status CheckOutputs(const BoundOp& bound) const;
  absl::Status CheckFinite(const BoundOp& bound) const;
  bool Enqueues(int stream) const;
  const std::string& NameOf(int variable) const {
    return options_.resources->plan->variables[variable].name;
  }

  const Options options_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_OP_RUNNER_H_
