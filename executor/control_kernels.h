// Kernels of what goes with blocks that are run on a condition. They move tensors and compute
// nothing.
#ifndef WEFT_EXECUTOR_CONTROL_KERNELS_H_
#define WEFT_EXECUTOR_CONTROL_KERNELS_H_

#include "absl/strings/string_view.h"
#include "ops/kernel.h"

namespace weft {

// Of ops that read, or write, one of several variables, as their input Mask says, an int32 or bool
// of one element; the others may hold nothing. nullptr for other ops.
//   select_input   Out = X[Mask]
//   select_output  Out[Mask] = X
const KernelFactory* FindSelectKernel(absl::string_view op_type);

// Output 0 is input 0, or zeros of its type and shape.
const KernelFactory& CopyKernel();
const KernelFactory& ZerosKernel();

}  // namespace weft

#endif  // WEFT_EXECUTOR_CONTROL_KERNELS_H_
