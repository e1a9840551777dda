// Ops that put elements back to where they were: the split of a concatenation has its parts, the
// concatenation of all parts of a split is what was split, and a reshape to the shape before
// another reshape is what that had.
#ifndef WEFT_OPS_ANALYSIS_VALUES_UNDONE_MOVES_H_
#define WEFT_OPS_ANALYSIS_VALUES_UNDONE_MOVES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "ops/analysis/values/expressions.h"
#include "ops/analysis/values/rank_memory.h"
#include "ops/schema/algebra.h"
#include "proto/program.h"

namespace weft {

class UndoneMoves {
 public:
  explicit UndoneMoves(const RankMemory& memory) : memory_(memory) {}

  // `out` is what the op makes of `operands`, one for each input. Nothing is recorded if sizes are
  // not declared, or if other inputs say how to move. O(arguments).
  void Record(const Op& op, Algebra algebra, absl::Span<const ExprId> operands, ExprId out);
  // One expression for each output of an op on `in` if it undoes what made that; invalid for other
  // outputs than those with the elements. Empty if it does not. O(outputs).
  std::vector<ExprId> Undo(const Op& op, Algebra algebra, ExprId in) const;

  // The same of a split into `parts`, and of a concatenation of `parts`; invalid: it is another.
  void RecordSplit(const Op& op, ExprId whole, std::vector<ExprId> parts);
  ExprId JoinedBy(const Op& op, absl::Span<const ExprId> parts) const;

  // The same of a stack op of one-element tensors. StackedIn: what these hold; empty for another
  // value.
  void RecordStack(const Op& op, absl::Span<const ExprId> operands, ExprId out);
  absl::Span<const ExprId> StackedIn(ExprId in) const {
    const auto found = stacked_.find(in);
    return found == stacked_.end() ? absl::Span<const ExprId>() : found->second;
  }

 private:
  using Dims = std::vector<int64_t>;
  struct Concatenation {
    size_t axis;
    Dims sizes;  // along the axis
    std::vector<ExprId> parts;
  };
  struct Split {
    int64_t axis;  // as the attribute says it
    ExprId whole;
    std::vector<ExprId> parts;
  };
  struct Reshaped {
    ExprId before;
    Dims dims;
  };

  // Of known dimensions, at least one; empty: not declared so.
  Dims DimsOf(Symbol name) const;

  const RankMemory& memory_;
  absl::flat_hash_map<ExprId, Concatenation> concatenations_;
  absl::flat_hash_map<ExprId, Split> splits_;  // by the first part
  absl::flat_hash_map<ExprId, Reshaped> reshaped_;
  absl::flat_hash_map<ExprId, std::vector<ExprId>> stacked_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_UNDONE_MOVES_H_
