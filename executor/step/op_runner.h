// Runs the ops of a bound step, one at a time.
#ifndef WEFT_EXECUTOR_STEP_OP_RUNNER_H_
#define WEFT_EXECUTOR_STEP_OP_RUNNER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "executor/step/server_port.h"
#include "executor/step/step_calls.h"
#include "executor/step/step_resources.h"
#include "executor/streams/stream.h"
#include "ops/tensor.h"

namespace weft {

// The value of a condition. InvalidArgument, naming slot and variable: not one bool.
absl::StatusOr<bool> ReadBool(absl::string_view slot, const std::string& variable,
                              const Tensor& tensor);

// By op of a chain.
using OpTimes = std::vector<std::chrono::steady_clock::duration>;

// What a task of a stream does for a call with ops: runs kernels, or communicates, copies between
// two memories, or moves values. Errors do not name the op; codes are those of
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

  // After an error, `failed` is the op. `times`: gets the times of a chain, on several threads
  // those of the first one; may be null.
  absl::Status Run(StepCall* call, const OpCall** failed, OpTimes* times) const;

 private:
  // `stream`: of the plan.
  absl::Status RunOp(KernelCall* call, int stream) const;
  absl::Status RunOp(CopyCall* call, int stream) const;
  absl::Status RunOp(CollectiveOpCall* call, int stream) const;
  absl::Status RunOp(RowsCall* call, int stream) const;
  absl::Status RunOp(MessageCall* call, int stream) const;
  absl::Status RunOp(ControlCall* call, int stream) const;
  absl::Status RunOp(ServerCall* call, int stream) const;
  template <typename Call>
  absl::Status RunAndCheck(Call* call, int stream, const OpCall** failed) const;
  absl::Status RunChain(ChainCall* chain, int stream, const OpCall** failed, OpTimes* times) const;
  absl::Status RunParts(ChainCall* chain, int64_t first_part, int64_t end_part, int lane,
                        const OpCall** failed, OpTimes* times) const;
  absl::Status RunGroup(GroupCall* group, int stream, const OpCall** failed) const;

  void GiveTypeToZeros(const OpCall& call) const;
  absl::StatusOr<bool> MayRun(const OpCall& call, const Communicator* communicator,
                              int stream) const;
  absl::Status FitTypes(CollectiveOpCall* call) const;
  absl::Status CheckInputs(const OpCall& call) const;
  absl::Status CheckOutputs(const OpCall& call) const;
  absl::Status CheckFinite(const OpCall& call, int stream) const;
  absl::Status CheckFinite(const Tensor& values, int variable) const;
  absl::Status CheckPart(const OpCall& call, int64_t begin, int64_t count) const;
  bool Enqueues(int stream) const;
  const std::string& NameOf(int variable) const {
    return options_.resources->plan->variables[variable].name;
  }

  const Options options_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_OP_RUNNER_H_
