// Tensors of indices as kernels read them.
#ifndef WEFT_OPS_CPU_INDICES_H_
#define WEFT_OPS_CPU_INDICES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"

namespace weft {

// The elements of an int32 or int64 tensor. InvalidArgument, which names the slot, unless each is
// in [0, size). FromEnd: -1 stands for the last one, down to -size.
absl::StatusOr<std::vector<int64_t>> ReadIndices(absl::string_view slot, const Tensor& tensor,
                                                 int64_t size);
absl::StatusOr<std::vector<int64_t>> ReadIndicesFromEnd(absl::string_view slot,
                                                        const Tensor& tensor, int64_t size);

// A negative axis counts from the end.
inline size_t NormalizedAxis(int64_t axis, size_t rank) { return axis < 0 ? axis + rank : axis; }

// The product of the dimensions before, and after, an axis.
inline int64_t CountBefore(const Dims& dims, size_t axis) {
  return NumElements(absl::MakeConstSpan(dims).first(axis));
}
inline int64_t CountAfter(const Dims& dims, size_t axis) {
  return NumElements(absl::MakeConstSpan(dims).subspan(axis + 1));
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_INDICES_H_
