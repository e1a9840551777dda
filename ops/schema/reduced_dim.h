// What an op that adds up or averages along dimensions (op_kinds.h) reduces.
#ifndef WEFT_OPS_SCHEMA_REDUCED_DIM_H_
#define WEFT_OPS_SCHEMA_REDUCED_DIM_H_

#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "proto/program.h"

namespace weft {

inline bool ReducesAll(const Op& op) { return op.BoolAttr("reduce_all").value_or(false); }

// The only dimension that is reduced, which the output lacks; negative: from the right. None: the
// output keeps it, or there are several.
inline absl::optional<int64_t> ReducedDim(const Op& op) {
  const std::vector<int64_t> dims = op.IntsAttr("dim").value_or(std::vector<int64_t>{0});
  const bool keeps = op.BoolAttr("keep_dim").value_or(false);
  if (dims.size() != 1 || keeps || ReducesAll(op)) return absl::nullopt;
  return dims[0];
}

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_REDUCED_DIM_H_
