#include "ops/analysis/core/block_args.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"

namespace weft {

std::vector<Op> OpsInside(const Op& op) {
  std::vector<Op> ops;
  std::vector<int> blocks = op.SubBlocks();
  absl::flat_hash_set<int> seen(blocks.begin(), blocks.end());
  while (!blocks.empty()) {
    const int block = blocks.back();
    blocks.pop_back();
    for (OpId id : op.program().block(block).ops()) {
      ops.push_back(op.program().op(id));
      for (int inner : ops.back().SubBlocks()) {
        if (seen.insert(inner).second) blocks.push_back(inner);
      }
    }
  }
  return ops;
}

void BlockArgs::Append(const Op& op, std::vector<Symbol>* reads, std::vector<Symbol>* writes) {
  const auto append = [&](absl::Span<const Symbol> args, std::vector<Symbol>* names) {
    for (Symbol arg : args) {
      if (program_.name(arg) != kEmptyVarName) names->push_back(arg);
    }
  };
  append(op.input_args(), reads);
  append(op.output_args(), writes);
  for (int block : op.SubBlocks()) {
    const Names& names = OfBlock(block);
    reads->insert(reads->end(), names.reads.begin(), names.reads.end());
    writes->insert(writes->end(), names.writes.begin(), names.writes.end());
  }
}

const BlockArgs::Names& BlockArgs::OfBlock(int number) {
  if (of_blocks_[number].has_value()) return *of_blocks_[number];
  const Block block = program_.block(number);
  Names names;
  for (OpId id : block.ops()) Append(program_.op(id), &names.reads, &names.writes);
  const auto keep_outer = [&](std::vector<Symbol>* all) {
    absl::flat_hash_set<Symbol> seen;
    std::vector<Symbol> outer;
    for (Symbol name : *all) {
      if (seen.insert(name).second && !block.FindVar(name).valid()) outer.push_back(name);
    }
    *all = std::move(outer);
  };
  keep_outer(&names.reads);
  keep_outer(&names.writes);
  return of_blocks_[number].emplace(std::move(names));
}

}  // namespace weft
