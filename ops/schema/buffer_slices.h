// Where the slices of a buffer of coalesce_tensor lie.
#ifndef WEFT_OPS_SCHEMA_BUFFER_SLICES_H_
#define WEFT_OPS_SCHEMA_BUFFER_SLICES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

// Each slice begins at a multiple of so many elements. `align_bytes`: attribute align_size.
int64_t SliceAlignment(bool use_align, int64_t align_bytes, DType dtype);
int64_t SliceAlignment(const Op& op);

// The elements of each slice of the op. Empty: one of them is not known, or attribute
// concated_shapes says other dimensions than the declarations.
std::vector<int64_t> SliceElements(const Op& op);

struct SliceLayout {
  std::vector<int64_t> offsets;  // in elements
  int64_t size = 0;              // of the buffer, with padding
};
SliceLayout LayOutSlices(absl::Span<const Dims> dims, int64_t alignment);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_BUFFER_SLICES_H_
