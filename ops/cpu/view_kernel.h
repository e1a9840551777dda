// Kernels whose output is a strided view of their input: transposed, sliced, repeated. Such a
// kernel is a function that returns the view, and a line with AddView; the gradient follows.
#ifndef WEFT_OPS_CPU_VIEW_KERNEL_H_
#define WEFT_OPS_CPU_VIEW_KERNEL_H_

#include <functional>

#include "absl/status/statusor.h"
#include "ops/cpu/strided_view.h"
#include "ops/op_kernel.h"

namespace weft {

// The view of a tensor of dims `x` that an op with output of dims `out` reads. Inference has
// checked attributes and dims.
using ViewOf = std::function<View(const Dims& x, const Dims& out)>;
using MakeView = ViewOf (*)(const OpAttrs&);

// Out = the view of x_slot.
absl::StatusOr<Kernel> ViewKernel(OpKernel op, const char* x_slot, MakeView make_view);

// Adds that kernel and the one of the gradient op.
void AddView(const char* type, MakeView make_view, KernelTable* table, const char* x_slot = "X");

// Attributes axes, starts, ends and, unless all are 1, strides.
ViewOf SliceView(const OpAttrs& attrs);
// x repeated along new dimensions, in front, and along those of 1.
View ExpandedView(const Dims& x, const Dims& out);

}  // namespace weft

#endif  // WEFT_OPS_CPU_VIEW_KERNEL_H_
