// Kernels of ops with inputs that replace attributes: shapes, axes and limits that the program
// computes.
#ifndef WEFT_OPS_MAKE_KERNEL_H_
#define WEFT_OPS_MAKE_KERNEL_H_

#include "absl/status/statusor.h"
#include "ops/kernel.h"

namespace weft {

// The kernel of an op. Factories do not see inputs that replace attributes (OpSchema::AttrIn): an
// op with such inputs makes its kernel in the step, from their values as attributes, and again if
// the values change. A list of tensors with one value each overrides one tensor with all values.
//
// Errors are those of the factory, and InvalidArgument for an attribute outside its range
// (AttrSchema::range), of which factories never hear. An op with such inputs reports them in the
// step, with InvalidArgument for values of a wrong type or number.
absl::StatusOr<Kernel> MakeKernel(const KernelFactory& factory, KernelSpec spec);

}  // namespace weft

#endif  // WEFT_OPS_MAKE_KERNEL_H_
