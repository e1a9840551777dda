#include "transpiler/verify/blocks_with_collectives.h"

#include <algorithm>

#include "ops/analysis/op_traits.h"

namespace weft {

BlocksWithCollectives::BlocksWithCollectives(const Program& program)
    : has_(program.num_blocks(), false) {
  OpTraits traits(program);
  std::vector<std::vector<int>> holders(program.num_blocks());  // blocks of the ops that run it
  for (int b = 0; b < program.num_blocks(); ++b) {
    for (OpId id : program.block(b).ops()) {
      const Op op = program.op(id);
      if (traits.Has(op, Trait::kCollective)) has_[b] = true;
      for (int sub : op.SubBlocks()) holders[sub].push_back(b);
    }
  }
  // From the inside out. Blocks do not contain themselves.
  std::vector<int> todo;
  for (int b = 0; b < program.num_blocks(); ++b) {
    if (has_[b]) todo.push_back(b);
  }
  while (!todo.empty()) {
    const int b = todo.back();
    todo.pop_back();
    for (int outer : holders[b]) {
      if (has_[outer]) continue;
      has_[outer] = true;
      todo.push_back(outer);
    }
  }
}

bool BlocksWithCollectives::AnyInner() const {
  return std::find(has_.begin() + 1, has_.end(), true) != has_.end();
}

bool BlocksWithCollectives::RunBy(const Op& op) const {
  const std::vector<int> blocks = op.SubBlocks();
  return std::any_of(blocks.begin(), blocks.end(), [&](int block) { return has_[block]; });
}

}  // namespace weft
