// The ops of a program, and its declarations of variables, as ranges of views.
#ifndef WEFT_PROTO_ALL_OPS_H_
#define WEFT_PROTO_ALL_OPS_H_

#include <cstddef>
#include <iterator>
#include <type_traits>

#include "absl/types/span.h"
#include "proto/program.h"

namespace weft {

// The views of some blocks: block by block, in the order of each. Valid as long as the views: until
// the next Rewriter::Commit. O(1) for each view and for each block.
template <typename Id>
class BlockRange {
  static constexpr bool kIsOfOps = std::is_same_v<Id, OpId>;

 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::conditional_t<kIsOfOps, Op, Var>;
    using difference_type = std::ptrdiff_t;
    using pointer = const value_type*;
    using reference = value_type;

    Iterator(const Program& program, int block, int end)
        : program_(&program), block_(block), end_(end) {
      FindBlock();
    }
    value_type operator*() const {
      if constexpr (kIsOfOps) {
        return program_->op(ids_.front());
      } else {
        return program_->var(ids_.front());
      }
    }
    Iterator& operator++() {
      ids_.remove_prefix(1);
      if (!ids_.empty()) return *this;
      ++block_;
      FindBlock();
      return *this;
    }
    bool operator==(const Iterator& other) const {
      return block_ == other.block_ && ids_.size() == other.ids_.size();
    }
    bool operator!=(const Iterator& other) const { return !(*this == other); }

   private:
    // The first block from block_ on that is not empty, if any.
    void FindBlock() {
      for (; block_ < end_; ++block_) {
        if constexpr (kIsOfOps) {
          ids_ = program_->block(block_).ops();
        } else {
          ids_ = program_->block(block_).vars();
        }
        if (!ids_.empty()) return;
      }
    }

    const Program* program_;
    int block_, end_;
    absl::Span<const Id> ids_;  // that are left of the block
  };

  BlockRange(const Program& program, int first_block, int end_block)
      : program_(program), first_(first_block), end_(end_block) {}

  Iterator begin() const { return Iterator(program_, first_, end_); }
  Iterator end() const { return Iterator(program_, end_, end_); }

 private:
  const Program& program_;
  const int first_, end_;
};

// The ops of all blocks, for loops and for algorithms such as absl::c_any_of.
//
//   for (const Op& op : AllOps(program)) ++num_ops_of[op.type()];
inline BlockRange<OpId> AllOps(const Program& program) {
  return {program, 0, program.num_blocks()};
}
// Of all blocks but the root.
inline BlockRange<OpId> InnerOps(const Program& program) {
  return {program, 1, program.num_blocks()};
}
// Of one block.
inline BlockRange<OpId> BlockOps(const Program& program, int block) {
  return {program, block, block + 1};
}
// The declarations of all blocks.
inline BlockRange<VarId> AllVars(const Program& program) {
  return {program, 0, program.num_blocks()};
}

}  // namespace weft

#endif  // WEFT_PROTO_ALL_OPS_H_
