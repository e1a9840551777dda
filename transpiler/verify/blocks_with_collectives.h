// Which blocks of a program make ranks wait for each other.
#ifndef WEFT_TRANSPILER_VERIFY_BLOCKS_WITH_COLLECTIVES_H_
#define WEFT_TRANSPILER_VERIFY_BLOCKS_WITH_COLLECTIVES_H_

#include <vector>

#include "proto/program.h"

namespace weft {

// Blocks that hold collectives, themselves or in blocks of their ops.
class BlocksWithCollectives {
 public:
  // O(ops).
  explicit BlocksWithCollectives(const Program& program);

  bool Has(int block) const { return has_[block]; }
  // Any block but the root.
  bool AnyInner() const;
  // Whether the op runs one of them.
  bool RunBy(const Op& op) const;

 private:
  std::vector<bool> has_;  // by block
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_BLOCKS_WITH_COLLECTIVES_H_
