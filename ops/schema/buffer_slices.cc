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

std::vector<int64_t> SliceElements(const Op& op) {
  const Block block = op.program().block(op.block());
  std::vector<int64_t> elements, shapes;
  for (Symbol name : op.Output("Output")) {
    const VarId var = block.Resolve(name);
    const absl::optional<TensorType> type =
        var.valid() ? DeclaredType(op.program().var(var)) : absl::nullopt;
    if (!type.has_value() || NumElements(type->dims) < 0) return {};
    elements.push_back(NumElements(type->dims));
    shapes.insert(shapes.end(), type->dims.begin(), type->dims.end());
  }
  const std::vector<int64_t> given = op.IntsAttr("concated_shapes").value_or(shapes);
  return given.empty() || given == shapes ? elements : std::vector<int64_t>();
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
