// Attributes that inputs give instead: shapes, axes and limits that the program computes.
#ifndef WEFT_OPS_MAKE_KERNEL_H_
#define WEFT_OPS_MAKE_KERNEL_H_

#include "absl/status/statusor.h"
#include "ops/kernel.h"

namespace weft {

// The kernel of an op. No kernel knows of inputs that give attributes (OpSchema::AttrIn): where the
// op has such inputs, its kernel is made in the step, with their values for attributes and without
// them as inputs, and made anew when the values are others than in the step before. Where there are
// both one tensor with all values and a list of tensors with one each, the list counts.
//
// Errors of the factory; those of an op with such inputs come in the step, where also
// InvalidArgument comes for values of a wrong type or number.
absl::StatusOr<Kernel> MakeKernel(const KernelFactory& factory, KernelSpec spec);

}  // namespace weft

#endif  // WEFT_OPS_MAKE_KERNEL_H_
