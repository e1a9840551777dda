// The tensors in buffers of which collectives give each rank a part, and which they gather.
#ifndef WEFT_OPS_ANALYSIS_VALUES_RANK_BUFFERS_H_
#define WEFT_OPS_ANALYSIS_VALUES_RANK_BUFFERS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ops/analysis/values/expressions.h"
#include "ops/analysis/values/flat_buffers.h"
#include "ops/analysis/values/rank_memory.h"
#include "ops/analysis/values/rank_values.h"
#include "ops/schema/communication_ops.h"
#include "proto/program.h"

namespace weft {

// Of fused buffers (Storage) and flat ones (FlatBuffers).
class RankBuffers {
 public:
  // By part of a buffer: the variables that hold it.
  using TensorsOfParts = std::vector<std::vector<VarId>>;

  // `finds_flat`: without, there are no flat buffers.
  RankBuffers(const Program& program, const RankValuesOptions& options, const RankMemory& memory,
              bool finds_flat);

  const FlatBuffers& flat() const { return flat_buffers_; }
  // Whether ops may write the buffer, or tensors of it, under names that share the memory.
  bool HasOtherNames(VarId whole, const FlatBuffer& buffer) const;
  // As declared.
  ExpressionTable::Layout LayoutOf(absl::Span<const VarId> tensors) const;
  static std::vector<VarId> FirstOfEach(const TensorsOfParts& tensors);

  // What a concat has put together: in the dims of tensors of which ranks have parts, of several
  // with as many elements those before the most reshapes.
  std::vector<VarId> ScatteredIn(const FlatBuffer& buffer) const;
  // What is taken out of a buffer: in the dims of the tensors of which `share` has parts.
  TensorsOfParts GatheredIn(const FlatBuffer& buffer, VarId share) const;

  // Whether nothing lies between the parts of a fused buffer.
  bool IsDense(VarId buffer) const;
  // Whether the tensors are `parts_of_share` shares from every rank.
  bool AreDivided(const ExpressionTable::Layout& layout, VarId share, int64_t parts_of_share) const;
  // Whether each rank gets a part of the tensors, or such a part from every rank.
  bool DividesBuffer(const CollectiveOp& collective, const ExpressionTable::Layout& layout,
                     VarId to) const;

 private:
  // The variables of the buffer that have these dims; empty: a part has none. `num_others` gets the
  // number of parts where they are no flat ones.
  TensorsOfParts WithDims(const FlatBuffer& buffer, const ExpressionTable::Layout& layout,
                          int* num_others) const;

  const Program& program_;
  const RankValuesOptions& options_;
  const RankMemory& memory_;
  FlatBuffers flat_buffers_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_RANK_BUFFERS_H_
