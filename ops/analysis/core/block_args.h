// What ops access, their blocks included.
#ifndef WEFT_OPS_ANALYSIS_CORE_BLOCK_ARGS_H_
#define WEFT_OPS_ANALYSIS_CORE_BLOCK_ARGS_H_

#include <vector>

#include "absl/types/optional.h"
#include "proto/program.h"

namespace weft {

// The ops in the blocks of the op, and in theirs: of each block once, together. O(ops).
std::vector<Op> OpsInside(const Op& op);

// What ops of a program access. Keeps what it has found out about blocks, so that a block that
// several ops run is searched once.
class BlockArgs {
 public:
  explicit BlockArgs(const Program& program)
      : program_(program), of_blocks_(program.num_blocks()) {}

  // Appends the names that the op reads and writes, and those that ops in its blocks do and that
  // the blocks do not declare. Not kEmptyVarName; a name may appear several times. O(arguments of
  // the op, and names of its blocks), and once O(arguments) for each block.
  void Append(const Op& op, std::vector<Symbol>* reads, std::vector<Symbol>* writes);

 private:
  struct Names {
    std::vector<Symbol> reads, writes;  // each once
  };

  const Names& OfBlock(int block);

  const Program& program_;
  std::vector<absl::optional<Names>> of_blocks_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_BLOCK_ARGS_H_
