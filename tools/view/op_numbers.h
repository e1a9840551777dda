// Numbers of the ops of a program over all blocks, one block after the other.
#ifndef WEFT_TOOLS_VIEW_OP_NUMBERS_H_
#define WEFT_TOOLS_VIEW_OP_NUMBERS_H_

#include <cstdint>
#include <vector>

#include "proto/program.h"

namespace weft {

class OpNumbers {
 public:
  explicit OpNumbers(const Program& program) {
    for (int block = 0; block < program.num_blocks(); ++block) {
      first_.push_back(static_cast<uint32_t>(ops_.size()));
      const auto ops = program.block(block).ops();
      ops_.insert(ops_.end(), ops.begin(), ops.end());
    }
  }

  uint32_t Of(const Op& op) const { return first_[op.block()] + op.position(); }
  uint32_t first(int block) const { return first_[block]; }
  // By number.
  const std::vector<OpId>& ops() const { return ops_; }

 private:
  std::vector<uint32_t> first_;  // by block
  std::vector<OpId> ops_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_VIEW_OP_NUMBERS_H_
