// Tensors one after the other in a vector.
#ifndef WEFT_OPS_SCHEMA_EXTRA_PACKED_SHAPES_H_
#define WEFT_OPS_SCHEMA_EXTRA_PACKED_SHAPES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// The shapes in attributes concated_ranks and concated_shapes. InvalidArgument if these contradict
// each other.
absl::StatusOr<std::vector<Dims>> PackedShapes(const OpAttrs& attrs);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_EXTRA_PACKED_SHAPES_H_
