// What ops between workers and parameter servers call, on one rank.
#ifndef WEFT_EXECUTOR_STEP_SERVER_PORT_H_
#define WEFT_EXECUTOR_STEP_SERVER_PORT_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "executor/plan/plan.h"
#include "ops/tensor.h"

namespace weft {

class ServerPort {
 public:
  virtual ~ServerPort() = default;

  // Runs an op of the plan that has PlanOp::server, on the compute stream. Tensors are in the order
  // of its arguments, in host memory; null for an argument that is no variable. Errors have the
  // slot and the value; the caller adds the op.
  //   Aborted           the run was aborted
  //   DeadlineExceeded  a worker or server does not answer in time; names it
  virtual absl::Status Run(const Plan::PlanOp& op, absl::Span<const Tensor* const> inputs,
                           absl::Span<Tensor* const> outputs) = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_SERVER_PORT_H_
