// Kernels whose output is a strided view of their input: transposed, sliced, repeated. Such a
// kernel is a function that returns the view, and a line with AddView; the gradient follows.
#ifndef WEFT_OPS_CPU_VIEW_KERNEL_H_
#define WEFT_OPS_CPU_VIEW_KERNEL_H_

#include "absl/status/statusor.h"
#include "ops/cpu/views.h"
#include "ops/op_kernel.h"

namespace weft {

// Out = the view of x_slot.
absl::StatusOr<Kernel> ViewKernel(OpKernel op, const char* x_slot, MakeView make_view);

// Adds that kernel and the one of the gradient op.
void AddView(const char* type, MakeView make_view, KernelTable* table, const char* x_slot = "X");

}  // namespace weft

#endif  // WEFT_OPS_CPU_VIEW_KERNEL_H_
