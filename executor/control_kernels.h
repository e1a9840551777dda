// Kernels of what goes with blocks that are run on a condition or in a loop: they move values, and
// arrays of them.
#ifndef WEFT_EXECUTOR_CONTROL_KERNELS_H_
#define WEFT_EXECUTOR_CONTROL_KERNELS_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "executor/value.h"
#include "ops/kernel.h"

namespace weft {

// In the order of the op's arguments; null where one stands for no variable.
struct ControlContext {
  absl::Span<const Value* const> inputs;
  absl::Span<Value* const> outputs;
  // Of kernels that add: output 0 = input 0 + input 1, of tensors; inputs without elements do not
  // count.
  const Kernel* add = nullptr;
  void* stream = nullptr;  // as in KernelContext
};

// Keeps nothing from call to call: all ranks share one. All work on memory that it enqueues is
// copying, on the stream; what it decides by values, it reads on the host at once.
using ControlKernel = std::function<absl::Status(const ControlContext&)>;
using ControlKernelFactory = std::function<ControlKernel(const KernelSpec&)>;

// nullptr for other ops.
//   select_input   Out = X[Mask]: Mask, an int32 or bool of one element, says which variable of X
//   select_output  Out[Mask] = X
//   write_to_array       Out[I] = X, I an integer of one element: other elements stay as they are
//   read_from_array      Out = X[I]; where that element was not written zeros of the shape of X_W,
//                        if there is one (the gradient of write_to_array)
//   lod_array_length     Out = the number of elements of X, int64
//   tensor_array_to_tensor       Out = the elements of X, joined along `axis` or, use_stack, along
//   a
//                                new one; OutIndex = how long each is there, int32
//   tensor_array_to_tensor_grad  X@GRAD[i] = the part of Out@GRAD that came from X[i]
// What an op does not read may hold nothing. An array is as long as its last element that was
// written needs; an index is below kMaxArrayLength.
const ControlKernelFactory* FindControlKernel(absl::string_view op_type);
// The same of ops that have kernels for tensors, where their variables are arrays.
//   assign   Out = X
//   sum      Out[i] = X[0][i] + X[1][i] + ..., of those that have an element i
const ControlKernelFactory* FindArrayKernel(absl::string_view op_type);

inline constexpr int64_t kMaxArrayLength = int64_t{1} << 24;

// Output 0 is input 0, or zeros of its types and shapes.
ControlKernel CopyValue();
ControlKernel ZerosLike();
// Output 0 += input 1; input 0 is output 0.
ControlKernel AddTo();
// All outputs hold no elements.
ControlKernel ClearElements();
// Appends a round to the rounds in output 0: the values of the inputs, shared.
ControlKernel BeginRound();
// Adds to that round what the other outputs hold, and leaves nothing in them.
ControlKernel EndRound();
// Takes the last round out of the rounds in output 0, and gives its values to the other outputs.
ControlKernel TakeRound();

}  // namespace weft

#endif  // WEFT_EXECUTOR_CONTROL_KERNELS_H_
