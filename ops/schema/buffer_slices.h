// What shares memory by an op: a buffer and its parts (Trait::kAlias), or an output and an input.
// Which variables of a program share memory says ops/analysis/core/storage.h.
#ifndef WEFT_OPS_SCHEMA_BUFFER_SLICES_H_
#define WEFT_OPS_SCHEMA_BUFFER_SLICES_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

// The slots of such an op that name the buffer and its parts.
inline constexpr absl::string_view kBufferSlot = "FusedOutput", kPartsSlot = "Output";

struct MadeBuffer {
  Symbol name;                       // invalid: the op names none, or several
  absl::Span<const Symbol> parts;    // in order
  absl::Span<const Symbol> sources;  // source i has the type of part i
  bool copies = false;               // the parts get the values of the sources
  absl::optional<double> constant;   // that buffer and parts are filled with; after copies, none
  bool keeps = false;                // parts keep values that they have
  // The parts have values when the op has run, or may have.
  bool has_values() const { return copies || constant.has_value() || keeps; }
};
// Of an op with Trait::kAlias. Valid as long as the op. O(1).
MadeBuffer MadeBufferOf(const Op& op);

// By SlotSchema::memory_of, in the order of the outputs.
struct SharedMemory {
  Symbol in, out;
};
// Of an op with that schema, which may be null. O(outputs); O(1) for most.
std::vector<SharedMemory> SharedMemoryOf(const Op& op, const OpSchema* schema);

// Each slice begins at a multiple of so many elements. `align_bytes`: attribute align_size.
int64_t SliceAlignment(bool use_align, int64_t align_bytes, DType dtype);
int64_t SliceAlignment(const Op& op);

struct SliceLayout {
  std::vector<int64_t> offsets;  // in elements
  int64_t size = 0;              // of the buffer, with padding
};
SliceLayout LayOutSlices(absl::Span<const Dims> dims, int64_t alignment);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_BUFFER_SLICES_H_
