// The type of the tensor that a creation op makes, from its attributes.
#ifndef WEFT_OPS_CPU_SHAPE_ATTR_H_
#define WEFT_OPS_CPU_SHAPE_ATTR_H_

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// From attributes `shape` and `dtype`. InvalidArgument for an unknown element type, a negative
// dimension, or a size beyond the address space.
absl::StatusOr<TensorType> TypeFromAttrs(const KernelSpec& spec);

}  // namespace weft

#endif  // WEFT_OPS_CPU_SHAPE_ATTR_H_
