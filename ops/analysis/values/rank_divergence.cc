#include "ops/analysis/values/rank_divergence.h"

#include <algorithm>

namespace weft {

RankDivergence::RankDivergence(const Program& program, const RankValues& values)
    : program_(program), values_(values), holder_(program.num_blocks()) {
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) {
      const Op op = program.op(id);
      for (int inner : op.SubBlocks()) {
        // A block that holds itself has no holder.
        if (inner != block && !holder_[inner].valid()) holder_[inner] = id;
      }
      for (Symbol name : op.output_args()) {
        const VarId var = Resolve(op, name);
        if (var.valid() && program.var(var).persistable()) writers_[var].push_back(id);
      }
    }
  }
}

Symbol RankDivergence::FindOwn(const Op& op, absl::Span<const Symbol> names,
                               const std::vector<VarId>& except) const {
  for (Symbol name : names) {
    const VarId var = Resolve(op, name);
    if (!var.valid() || std::find(except.begin(), except.end(), var) != except.end()) continue;
    if (!values_.AtEnd(var).IsEqualOnRanks()) return name;
  }
  return Symbol();
}

RankDivergence::Cause RankDivergence::FindCondition(Op op) const {
  // The limit ends the search if blocks hold each other.
  for (int depth = 0; depth <= program_.num_blocks(); ++depth) {
    const Symbol condition = FindOwn(op, op.Input("Cond"), {});
    if (condition.valid() && !op.SubBlocks().empty()) return {op.id(), condition, true};
    if (!holder_[op.block()].valid()) break;
    op = program_.op(holder_[op.block()]);
  }
  return {};
}

RankDivergence::Cause RankDivergence::Of(VarId var) const {
  const auto writers = writers_.find(var);
  if (writers == writers_.end()) return {};
  // At first passes over two kinds of inputs: what the op also writes, such as optimizer state, may
  // be a consequence; inputs of an op with a block are causes of the ops inside.
  for (bool is_last_resort : {false, true}) {
    for (OpId id : writers->second) {
      const Op op = program_.op(id);
      const Cause condition = FindCondition(op);
      if (condition.op.valid()) return condition;
      if (!is_last_resort && !op.SubBlocks().empty()) continue;
      std::vector<VarId> except = {var};
      if (!is_last_resort) {
        for (Symbol name : op.output_args()) except.push_back(Resolve(op, name));
      }
      const Symbol own = FindOwn(op, op.input_args(), except);
      if (own.valid()) return {id, own, false};
    }
  }
  return {writers->second.front(), Symbol(), false};
}

}  // namespace weft
