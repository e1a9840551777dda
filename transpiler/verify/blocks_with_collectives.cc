#include "transpiler/verify/blocks_with_collectives.h"

#include "ops/analysis/op_traits.h"

namespace weft {

std::vector<bool> BlocksWithCollectives(const Program& program) {
  std::vector<bool> has(program.num_blocks(), false);
  OpTraits traits(program);
  std::vector<std::vector<int>> holders(program.num_blocks());  // blocks of the ops that run it
  for (int b = 0; b < program.num_blocks(); ++b) {
    for (OpId id : program.block(b).ops()) {
      const Op op = program.op(id);
      if (traits.Has(op, Trait::kCollective)) has[b] = true;
      for (int sub : op.SubBlocks()) holders[sub].push_back(b);
    }
  }
  // From the inside out. Blocks do not contain themselves.
  std::vector<int> todo;
  for (int b = 0; b < program.num_blocks(); ++b) {
    if (has[b]) todo.push_back(b);
  }
  while (!todo.empty()) {
    const int b = todo.back();
    todo.pop_back();
    for (int outer : holders[b]) {
      if (has[outer]) continue;
      has[outer] = true;
      todo.push_back(outer);
    }
  }
  return has;
}

}  // namespace weft
