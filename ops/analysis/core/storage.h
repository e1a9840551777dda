// Which variables share memory, and where in it they lie.
#ifndef WEFT_OPS_ANALYSIS_CORE_STORAGE_H_
#define WEFT_OPS_ANALYSIS_CORE_STORAGE_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "ops/schema/buffer_slices.h"
#include "proto/program.h"

namespace weft {

// A variable has memory of its own until an op with Trait::kAlias makes it a buffer, or a part of
// one; then it lies in the memory of the buffer. An output may have the memory of an input
// (SlotSchema::memory_of). No other op moves a variable: an output in place
// (SlotSchema::in_place_of) is the variable of the input, and all others are copies.
//
// A name that no block declares counts as one variable. Refers to the program, and knows those of
// its ops that exist at construction. O(arguments) to make; questions are O(1) if they say no more.
class Storage {
 public:
  // A buffer, as one op makes it.
  struct Buffer : MadeBuffer {
    OpId made_by;
    int block = 0;                 // of the op
    VarId var;                     // invalid: not declared
    std::vector<VarId> part_vars;  // in order; without parts that are not declared
  };
  // In elements. Not known: the shape of a part is not, or attribute concated_shapes differs from
  // the declarations.
  struct Layout {
    std::vector<int64_t> offsets, counts;  // by part
    int64_t size = 0;                      // of the buffer, with padding

    bool is_known() const { return !counts.empty(); }
  };

  explicit Storage(const Program& program);

  // Of all ops, block by block, in order.
  absl::Span<const Buffer> buffers() const { return buffers_; }
  // Null: the op makes none.
  const Buffer* MadeBy(OpId op) const;
  // What the op makes share memory, buffers aside; mostly nothing.
  absl::Span<const SharedMemory> SharedBy(OpId op) const;
  // Whether any op does.
  bool SharesMemory() const { return !shared_by_.empty(); }
  // Whether the variable shares memory with another one at any time.
  bool SharesMemory(int block, Symbol name) const {
    return !classes_.empty() && classes_.contains(KeyOf(block, name));
  }
  // Equal for two variables that share memory at any time: a buffer, its parts, other buffers of
  // these parts, what shares the memory of one, and so on. Names mean what they do in the block.
  uint64_t ClassOf(int block, Symbol name) const;
  // O(parts).
  Layout LayoutOf(const Buffer& buffer) const;

  // A number for the variable that the name means in a block.
  uint64_t KeyOf(int block, Symbol name) const;
  static uint64_t KeyOf(VarId var, Symbol name) {
    return var.valid() ? uint64_t{var.value()} : uint64_t{1} << 32 | name.value();
  }

 private:
  const Program& program_;
  std::vector<Buffer> buffers_;
  absl::flat_hash_map<OpId, size_t> made_by_;
  absl::flat_hash_map<OpId, std::vector<SharedMemory>> shared_by_;
  absl::flat_hash_map<uint64_t, uint64_t> classes_;  // by key
};

// The buffers at a point of a walk over a program: if several ops that the walk has passed make a
// buffer, or make a variable a part, the last of them counts.
class CurrentBuffers {
 public:
  explicit CurrentBuffers(const Storage& storage) : storage_(storage) {}

  // Does nothing for null.
  void Make(const Storage::Buffer* buffer);
  void Clear() {
    by_name_.clear();
    of_part_.clear();
  }
  void Pass(OpId op) { Make(storage_.MadeBy(op)); }
  // Null: the variable is no buffer, or no part of one.
  const Storage::Buffer* Named(int block, Symbol name) const;
  const Storage::Buffer* Named(VarId var) const {
    return by_name_.empty() ? nullptr : Find(by_name_, var.value());
  }
  const Storage::Buffer* WithPart(int block, Symbol name) const;

 private:
  using ByKey = absl::flat_hash_map<uint64_t, const Storage::Buffer*>;
  static const Storage::Buffer* Find(const ByKey& buffers, uint64_t key);

  const Storage& storage_;
  ByKey by_name_, of_part_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_STORAGE_H_
