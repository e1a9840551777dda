#include "ops/schema/buffer_slices.h"

#include <algorithm>

namespace weft {

MadeBuffer MadeBufferOf(const Op& op) {
  MadeBuffer made;
  const absl::Span<const Symbol> buffers = op.Output(kBufferSlot);
  if (buffers.size() == 1) made.name = buffers[0];
  made.parts = op.Output(kPartsSlot);
  made.sources = op.Input("Input");
  made.copies = op.BoolAttr("copy_data").value_or(false);
  if (!made.copies && op.BoolAttr("set_constant").value_or(false)) {
    made.constant = op.FloatAttr("constant").value_or(0);
  }
  made.keeps = op.BoolAttr("persist_output").value_or(false);
  return made;
}

std::vector<SharedMemory> SharedMemoryOf(const Op& op, const OpSchema* schema) {
  std::vector<SharedMemory> shared;
  if (schema == nullptr) return shared;
  for (const SlotSchema& slot : schema->outputs()) {
    if (slot.memory_of.empty()) continue;
    const absl::Span<const Symbol> ins = op.Input(slot.memory_of), outs = op.Output(slot.name);
    for (size_t i = 0; i < std::min(ins.size(), outs.size()); ++i) {
      shared.push_back({ins[i], outs[i]});
    }
  }
  return shared;
}

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
