// Attributes of Weft's own, which passes write on ops of any schema. kNumRanksAttr is in
// op_attrs.h.
#ifndef WEFT_OPS_SCHEMA_WEFT_ATTRS_H_
#define WEFT_OPS_SCHEMA_WEFT_ATTRS_H_

#include "absl/strings/string_view.h"

namespace weft {

// On a collective that adds: kAccumulatesNatively if half precision is rounded after each addition,
// as MindSpore, SINGA and MegEngine do. kAccumulatesInFp32, or without it: sums are fp32, rounded
// once.
inline constexpr absl::string_view kAccumulateTypeAttr = "accumulate_type";
inline constexpr absl::string_view kAccumulatesNatively = "native";
inline constexpr absl::string_view kAccumulatesInFp32 = "fp32";

// True on an op that is not linear in a gradient, and yet is meant for what each rank has before
// the reduction (a clip).
inline constexpr absl::string_view kPerRankAttr = "per_rank";

// On a gradient of a block (Trait::kBlockGrad) whose inputs a pass has renamed: pairs of new and
// old names. The block goes on to call gradients after the old ones
// (ops/analysis/core/block_names.h).
inline constexpr absl::string_view kOriginalNamesAttr = "original_names";

// The op that makes tensors of the rows that sparsified gradients travel as.
inline constexpr absl::string_view kDensifyOp = "densify";

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_WEFT_ATTRS_H_
