#include "ops/schema/buffer_slices.h"

#include <algorithm>

#include "absl/types/optional.h"

namespace weft {

int64_t SliceAlignment(bool use_align, int64_t align_bytes, DType dtype) {
  constexpr int64_t kDefault = 256;
  if (!use_align) return 1;
  const int64_t bytes = align_bytes > 0 ? align_bytes : kDefault;
  return std::max<int64_t>(1, bytes / static_cast<int64_t>(SizeOf(dtype)));
}

int64_t SliceAlignment(const Op& op) {
  const absl::optional<DType> dtype =
      DTypeFromProto(static_cast<int>(op.IntAttr("dtype").value_or(-1)));
  return SliceAlignment(op.BoolAttr("use_align").value_or(true),
                        op.IntAttr("align_size").value_or(0), dtype.value_or(DType::kFloat32));
}

SliceLayout LayOutSlices(absl::Span<const Dims> dims, int64_t alignment) {
  SliceLayout layout;
  for (const Dims& of_slice : dims) {
    layout.offsets.push_back(layout.size);
    layout.size += (NumElements(of_slice) + alignment - 1) / alignment * alignment;
  }
  return layout;
}

}  // namespace weft
