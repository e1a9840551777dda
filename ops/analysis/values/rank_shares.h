// Values on ranks that hold several values: buffers of tensors, of which each rank has a part, and
// states that stand for several equal ones (Setting::shares, Setting::common).
#ifndef WEFT_OPS_ANALYSIS_VALUES_RANK_SHARES_H_
#define WEFT_OPS_ANALYSIS_VALUES_RANK_SHARES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ops/analysis/values/expressions.h"
#include "ops/analysis/values/rank_values.h"

namespace weft {

// The values in one, as ExpressionTable::Several. What holds of all of them holds of it; values of
// different placements have no common one. Without a table, it has no expression. O(values).
RankValue InOne(const ExpressionTable::Layout& layout, absl::Span<const RankValue> values,
                ExpressionTable* table);

// Value `i`: of common values beyond the last one, the last one. Zero, and a value without
// expression, are the same everywhere.
RankValue ValueOf(const RankValue& several, size_t i, const ExpressionTable* table);

// Whether it has values to be taken out.
inline bool HoldsSeveral(const RankValue& value, const ExpressionTable& table) {
  return value.expr.valid() && !table.ValuesOf(value.expr).empty();
}

ExpressionTable::Layout LayoutOf(absl::Span<const SharedTensor> tensors);

// The expression of such a state of the setting when a step begins: what one device has in the
// variables. Invalid for another variable. O(its variables).
ExprId InitialOfShare(absl::string_view variable, const Setting& setting, ExpressionTable* table);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_RANK_SHARES_H_
