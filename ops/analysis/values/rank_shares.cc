#include "ops/analysis/values/rank_shares.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/schema/tensor_type.h"

namespace weft {

using Placement = RankValue::Placement;

RankValue InOne(const ExpressionTable::Layout& layout, absl::Span<const RankValue> values,
                ExpressionTable* table) {
  // Zero is a part of zero, too, whatever its placement.
  const auto is_zero = [](const RankValue& value) { return value.is_zero; };
  const auto first = std::find_if_not(values.begin(), values.end(), is_zero);
  RankValue one = first == values.end() ? values[0] : *first;
  one.terms = 0;
  one.local_factor = 0;
  one.rows = ExprId();
  one.factor = 0;
  one.is_zero = true;
  for (const RankValue& value : values) {
    if (value.placement != one.placement && !value.is_zero) {
      one.placement = Placement::kLocal;
      one.has_unknown_scale = true;
    }
    one.Inherit(value);
    one.is_gradient = one.is_gradient && value.is_gradient;
    one.is_summed = one.is_summed && value.is_summed;
    one.averaged_across_ranks = one.averaged_across_ranks && value.averaged_across_ranks;
    if (!one.drawn_by.valid()) one.drawn_by = value.drawn_by;
    if (value.rank != one.rank) one.rank = -1;
    if (value.is_zero) continue;
    if (one.is_zero) {
      one.is_zero = false;
      one.factor = value.factor;
      one.unscaled_sums = value.unscaled_sums;
    } else if (value.unscaled_sums != one.unscaled_sums) {
      one.is_mixed = one.has_unknown_scale = true;
    }
  }
  if (table == nullptr) return one;
  if (one.is_zero) {
    one.expr = table->Zero();
    return one;
  }
  std::vector<ExprId> exprs;
  for (const RankValue& value : values) {
    exprs.push_back(value.is_zero ? table->Zero()
                                  : table->Scaled(value.expr, value.factor / one.factor));
  }
  one.expr = table->Several(layout, exprs);
  return one;
}

RankValue ValueOf(const RankValue& several, size_t i, const ExpressionTable* table) {
  if (several.is_zero || table == nullptr || !several.expr.valid()) return several;
  const absl::Span<const ExprId> values = table->ValuesOf(several.expr);
  if (values.empty()) return several;
  const size_t last = values.size() - 1;
  const ExpressionTable::Term term = table->Unscaled(values[std::min(i, last)]);
  RankValue value = several;
  value.expr = term.expr;
  value.factor = several.factor * term.factor;
  if (term.expr == table->Zero()) {
    value.is_zero = true;
    value.factor = 0;
  }
  return value;
}

ExpressionTable::Layout LayoutOf(absl::Span<const SharedTensor> tensors) {
  ExpressionTable::Layout layout;
  for (const SharedTensor& tensor : tensors) layout.push_back(tensor.dims);
  return layout;
}

ExprId InitialOfShare(absl::string_view variable, const Setting& setting, ExpressionTable* table) {
  std::vector<ExprId> values;
  const auto share = setting.shares.find(std::string(variable));
  if (share != setting.shares.end()) {
    for (const SharedTensor& tensor : share->second) {
      values.push_back(
          table->Initial(tensor.name.empty() ? absl::StrCat(variable, "@PADDING") : tensor.name));
    }
    return table->Several(LayoutOf(share->second), values);
  }
  const auto common = setting.common.find(std::string(variable));
  if (common == setting.common.end()) return ExprId();
  for (const std::string& name : common->second) values.push_back(table->Initial(name));
  return table->Several({}, values);
}

}  // namespace weft
