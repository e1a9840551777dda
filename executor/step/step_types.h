// The types of a plan's variables in a step that begins with values of given types.
#ifndef WEFT_EXECUTOR_STEP_STEP_TYPES_H_
#define WEFT_EXECUTOR_STEP_STEP_TYPES_H_

#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "executor/communicators/communicator.h"
#include "executor/step/step_resources.h"
#include "ops/bound_kernel.h"
#include "ops/schema/tensor_type.h"

namespace weft {

struct StepTypes {
  // By variable: the one type that it has in this step, whenever it holds a value. None: unknown,
  // or there are several.
  std::vector<absl::optional<TensorType>> variables;
  // By op of the plan: every argument has one type, and inference knows the types of all outputs.
  // Such an op is bound to them once; the others find out in every step.
  std::vector<bool> is_static;
};

// Follows the types from op to op; entries (PlanAccesses) have those of their values now. kernels:
// by op of the plan, unbound; those of static ops are bound afterwards. O(arguments).
StepTypes FindStepTypes(const StepResources& resources, absl::Span<BoundKernel> kernels);

// Of what a rank passes to a collective, or receives.
void SetType(const TensorType& type, CollectiveCall* call);

// The dimensions of the output of a collective. If ranks disagree on the input, the communicator
// reports it.
Dims CollectiveOutputDims(CollectiveKind kind, const Dims& in, int nranks);

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_STEP_TYPES_H_
