// Kernels that move values, and arrays of values, in and out of blocks of branches and loops.
#ifndef WEFT_EXECUTOR_PLAN_CONTROL_KERNELS_H_
#define WEFT_EXECUTOR_PLAN_CONTROL_KERNELS_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "executor/plan/scope.h"
#include "ops/bound_kernel.h"
#include "ops/kernel.h"

namespace weft {

// In the order of the op's arguments; null for an argument that is no variable.
struct ControlContext {
  absl::Span<const Value* const> inputs;
  absl::Span<Value* const> outputs;
  // For kernels that add: output 0 = input 0 + input 1, of tensors. Inputs without elements do not
  // count.
  BoundKernel* add = nullptr;
  void* stream = nullptr;  // as in KernelContext
};

// Stateless: all ranks share one. Work on memory is enqueued on the stream as copies. Values that
// decide control flow are read on the host immediately.
using ControlKernel = std::function<absl::Status(const ControlContext&)>;
using ControlKernelFactory = std::function<ControlKernel(const KernelSpec&)>;

// The kernel of an op type; nullptr for other ops.
//   select_input   Out = X[Mask]; Mask, one int32 or bool, selects a variable of X
//   select_output  Out[Mask] = X
//   write_to_array       Out[I] = X, I one integer; other elements keep their values
//   read_from_array      Out = X[I]; if that element was not written, zeros of the shape of X_W,
//                        if present (the gradient of write_to_array)
//   lod_array_length     Out = the number of elements of X, int64
//   tensor_array_to_tensor       Out = the elements of X, concatenated along `axis` or, with
//                                use_stack, stacked along a new one; OutIndex = their sizes, int32
//   tensor_array_to_tensor_grad  X@GRAD[i] = the part of Out@GRAD that came from X[i]
// Variables that an op does not read may have no value. The length of an array is the largest
// written index plus 1. An index must be below kMaxArrayLength.
const ControlKernelFactory* FindControlKernel(absl::string_view op_type);
// Whether an op of this type reads just one of its inputs besides the one that selects it; others
// may be left from an earlier step.
bool SelectsInput(absl::string_view op_type);
// Whether the op is recurrent, or its gradient.
bool IsRecurrent(const OpSchema& schema);
// The kernel of an op that has a tensor kernel, for variables that are arrays.
//   assign   Out = X
//   sum      Out[i] = X[0][i] + X[1][i] + ..., over those that have an element i
const ControlKernelFactory* FindArrayKernel(absl::string_view op_type);

inline constexpr int64_t kMaxArrayLength = int64_t{1} << 24;

// Kernels for work at the ends of a block. Output 0 is input 0, or zeros of its types and shapes.
absl::Status CopyValue(const ControlContext& ctx);
absl::Status ZerosLike(const ControlContext& ctx);
// Output 0 += input 1; input 0 is output 0.
absl::Status AddTo(const ControlContext& ctx);
// Clears all outputs.
absl::Status ClearElements(const ControlContext& ctx);
// Appends an iteration to the iterations in output 0: the values of the inputs, shared.
absl::Status BeginIteration(const ControlContext& ctx);
// Moves the values of the other outputs into that iteration.
absl::Status EndIteration(const ControlContext& ctx);
// Removes the last iteration from the iterations in output 0, and moves its values to the other
// outputs.
absl::Status PopIteration(const ControlContext& ctx);

// Which step of a sequence comes first.
enum class StepOrder { kForward, kReverse };
// Output 0: iterations, each with the elements of one step of all inputs, which are sequences of
// the same length along dimension 0; in this order.
ControlKernel SplitSteps(StepOrder order);
// Appends input 0 to the array in output 0, as a copy.
absl::Status AppendStep(const ControlContext& ctx);
// Output 0: the sequence whose steps are the elements of the array in input 0, in this order.
ControlKernel StackSteps(StepOrder order);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_CONTROL_KERNELS_H_
