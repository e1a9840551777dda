// The number that op fill_constant writes, for all devices.
#ifndef WEFT_OPS_CPU_CONSTANT_H_
#define WEFT_OPS_CPU_CONSTANT_H_

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/tensor.h"

namespace weft {

// Attribute str_value, or value if that is empty, as a tensor of one element of attribute dtype.
// InvalidArgument, with the attribute, for a number that does not fit.
absl::StatusOr<Tensor> ConstantOf(const KernelSpec& spec);

}  // namespace weft

#endif  // WEFT_OPS_CPU_CONSTANT_H_
