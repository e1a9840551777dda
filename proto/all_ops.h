// All ops of a program, and all declarations of variables, as ranges.
#ifndef WEFT_PROTO_ALL_OPS_H_
#define WEFT_PROTO_ALL_OPS_H_

#include <cstddef>
#include <iterator>
#include <type_traits>

#include "absl/types/span.h"
#include "proto/program.h"

namespace weft {

// The views of all blocks: block by block, in the order of each.
//
//   for (const Op& op : AllOps(program)) ++num_ops_of[op.type()];
//   return absl::c_any_of(AllOps(program), IsBackward);
//
// Valid as long as the views: until the next Rewriter::Commit. O(1) for each op or variable, and
// for each block.
template <typename Id>
class AllOf {
  static constexpr bool kIsOfOps = std::is_same_v<Id, OpId>;

 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::conditional_t<kIsOfOps, Op, Var>;
    using difference_type = std::ptrdiff_t;
    using pointer = const value_type*;
    using reference = value_type;

    Iterator(const Program& program, int block) : program_(&program), block_(block) { FindBlock(); }
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
      for (; block_ < program_->num_blocks(); ++block_) {
        if constexpr (kIsOfOps) {
          ids_ = program_->block(block_).ops();
        } else {
          ids_ = program_->block(block_).vars();
        }
        if (!ids_.empty()) return;
      }
    }

    const Program* program_;
    int block_;
    absl::Span<const Id> ids_;  // that are left of the block
  };

  explicit AllOf(const Program& program, int first_block = 0)
      : program_(program), first_block_(first_block) {}

  Iterator begin() const { return Iterator(program_, first_block_); }
  Iterator end() const { return Iterator(program_, program_.num_blocks()); }

 private:
  const Program& program_;
  const int first_block_;
};

using AllOps = AllOf<OpId>;
using AllVars = AllOf<VarId>;

// The ops of all blocks but the root.
inline AllOps InnerOps(const Program& program) { return AllOps(program, /*first_block=*/1); }

}  // namespace weft

#endif  // WEFT_PROTO_ALL_OPS_H_
