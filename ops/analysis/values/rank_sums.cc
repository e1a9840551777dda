// The values of sums, differences, multiples and branches on ranks.
#include <algorithm>
#include <vector>

#include "ops/analysis/values/rank_functions.h"
#include "ops/analysis/values/rank_shares.h"
#include "ops/schema/op_attrs.h"
#include "proto/op_role.h"

namespace weft {
namespace {

using Placement = RankValue::Placement;

bool IsForward(const Op& op) {
  return (op.role() & (kRoleBackward | kRoleOptimize | kRoleDist | kRoleNotSpecified)) == 0;
}

}  // namespace

// Whether `ins` are the values of all ranks, each once.
bool RankFunctions::AreAllRanks(absl::Span<const RankValue> ins) const {
  if (!options_.HasRanks(ins.size())) return false;
  std::vector<bool> seen(ins.size(), false);
  for (const RankValue& in : ins) {
    const bool is_part = in.gathered_by.valid() && (in.placement == Placement::kRankSubset ||
                                                    in.placement == Placement::kReplicated);
    if (!is_part || in.placement != ins[0].placement || in.rank < 0 ||
        in.rank >= static_cast<int>(seen.size()) || seen[in.rank] || in.expr != ins[0].expr ||
        !SameFactor(in.factor, ins[0].factor) || in.unscaled_sums != ins[0].unscaled_sums ||
        in.gathered_by != ins[0].gathered_by) {
      return false;
    }
    seen[in.rank] = true;
  }
  return true;
}

OpId RankFunctions::DrawOf(absl::Span<const RankValue> ins) {
  OpId drawn_by;
  for (const RankValue& in : ins) {
    if (in.placement == Placement::kReplicated) continue;
    if (!in.drawn_by.valid()) return OpId();
    if (!drawn_by.valid()) drawn_by = in.drawn_by;
  }
  return drawn_by;
}

RankValue RankFunctions::Sum(const Op& op, absl::Span<const RankValue> ins,
                             absl::Span<const double> factors) {
  const bool all_one = std::all_of(factors.begin(), factors.end(), [](double f) { return f == 1; });
  if (ins.size() > 1 && all_one && AreAllRanks(ins)) {
    RankValue own = ins[0];
    if (own.placement == Placement::kRankSubset) own.placement = Placement::kLocal;
    // Gathering them has counted as a reduction.
    if (own.reductions > 0) --own.reductions;
    RankValue sum = SumOverRanks(op, own);
    sum.reductions = ins[0].reductions;
    sum.has_merged_rows = false;
    sum.rank = -1;
    sum.gathered_by = OpId();
    return sum;
  }
  RankValue out;
  bool is_first = true, has_several = false, all_gradient = true, all_summed = true,
       all_samples = true;
  const RankValue* local = nullptr;
  for (const RankValue& in : ins) {
    if (in.is_zero) continue;
    const bool is_own = !in.IsEqualOnRanks();
    all_samples = all_samples && in.is_gradient_of_samples;
    if (is_first) {
      out.has_merged_rows = in.has_merged_rows;
      out.rows = in.rows;
      out.placement = in.placement;
      out.rank = in.rank;
      out.gathered_by = in.gathered_by;
      out.unscaled_sums = in.unscaled_sums;
    } else {
      has_several = true;
      out.placement = JoinPlacements(out.placement, in.placement);
      if (out.rank != in.rank || in.placement == Placement::kRankSubset) out.rank = -1;
      if (out.unscaled_sums != in.unscaled_sums) out.is_mixed = out.has_unknown_scale = true;
    }
    if (is_own && local == nullptr) local = &in;
    is_first = false;
    if (in.placement != Placement::kReplicated) {
      all_gradient = all_gradient && in.is_gradient;
      all_summed = all_summed && in.is_summed;
    }
    out.averaged_across_ranks = out.averaged_across_ranks || in.averaged_across_ranks;
    out.Inherit(in);
  }
  if (is_first) return expressions_.ZeroValue();
  out.drawn_by = DrawOf(ins);
  out.is_gradient_of_samples = all_samples;
  out.is_gradient = out.placement != Placement::kReplicated && all_gradient;
  out.is_summed = out.is_gradient && all_summed;
  out.averaged_across_ranks = out.averaged_across_ranks && out.placement == Placement::kReplicated;
  if (local != nullptr) out.unscaled_sums = local->unscaled_sums;
  if (expressions_.AreMade()) {
    expressions_.SetSum(ins, factors, /*keeps_terms=*/!IsForward(op), &out);
  }
  if (has_several) SetRowsOfSum(op, ins, factors, &out);
  return out;
}

// They are the rows of one operand after those of another: one index may have several.
void RankFunctions::SetRowsOfSum(const Op& op, absl::Span<const RankValue> ins,
                                 absl::Span<const double> factors, RankValue* out) {
  out->has_merged_rows = false;
  out->rows = ExprId();
  if (!expressions_.AreMade() || !HoldsRows(op, op.input_args().size())) return;
  std::vector<ExprId> rows;
  for (size_t i = 0; i < ins.size(); ++i) {
    if (ins[i].is_zero) continue;
    rows.push_back(table().Scaled(expressions_.Placed(ins[i]), ins[i].factor * factors[i]));
    rows.push_back(RowsOf(ins[i]));
  }
  out->rows = expressions_.Named("rows of a sum", "rows", rows);
}

RankValue RankFunctions::Multiple(const Op& op, const ConstantFactors::Factor& by) {
  const double factor = by.value;
  RankValue out = Sum(op, {ins_[by.operand]}, {factor});
  // A 1 that was summed over the ranks is their number, but what was made of it need not be.
  const int sums = by.constant < 0 ? 0 : ins_[by.constant].unscaled_sums;
  const double number = by.divides ? 1 / factor : factor;
  if (sums != 0 && SameFactor(number * std::pow(options_.RankFactor(), sums), 1)) {
    out.ChangeUnscaledSums(by.divides ? -sums : sums);
    events_.scales.push_back({op.id(), by.divides});
    return out;
  }
  // A division by the number of ranks, if the op says so, after a sum over ranks, of the gradient
  // of a loss before the backward pass, or of any gradient in the root block's backward pass, where
  // the original shows that it is new. (Blocks divide by how often they do not run.)
  const bool is_original =
      options_.original_ops != nullptr && (*options_.original_ops)[op.id().value()];
  const bool divides = !is_original && options_.setting.nranks.has_value() &&
                       !options_.IsOneRank() && SameFactor(factor * options_.RankFactor(), 1);
  const bool is_new =
      options_.original_ops != nullptr && out.is_gradient && op.block() == 0 && IsBackward(op);
  const bool counts = divides && (op.HasAttr(kNumRanksAttr) || out.unscaled_sums > 0 ||
                                  ScalesLossGrad(op, out) || is_new);
  if (counts) out.ChangeUnscaledSums(-1);
  events_.scales.push_back({op.id(), counts});
  return out;
}

// `value`: what the op computes.
bool RankFunctions::ScalesLossGrad(const Op& op, const RankValue& value) {
  if (value.placement != Placement::kReplicated || value.reductions > 0) return false;
  const bool is_in_place = IsBackward(op) && op.input_args()[0] == op.output_args()[0];
  return is_in_place || loss_gradients_.IsScaledBy(op);
}

// Whether the values hold several of one layout and placement, or one of them does, and the other
// is zero.
bool RankFunctions::AreSeveral(const RankValue& a, const RankValue& b) {
  const auto holds_several = [&](const RankValue& value) {
    return !value.is_zero && HoldsSeveral(value, table());
  };
  if (!holds_several(a)) return a.is_zero && holds_several(b);
  if (b.is_zero) return true;
  return holds_several(b) && a.placement == b.placement &&
         table().OperationOf(a.expr) == table().OperationOf(b.expr) &&
         table().ValuesOf(a.expr).size() == table().ValuesOf(b.expr).size();
}

// Of values that hold several, or are zero: value by value. A share of what is selected is what is
// selected of shares.
RankValue RankFunctions::SelectOfSeveral(const RankValue& condition, const RankValue& yes,
                                         const RankValue& no) {
  const RankValue& of = yes.is_zero ? no : yes;
  const auto value_of = [&](const RankValue& several, size_t i) {
    RankValue value = ValueOf(several, i, &table());
    if (of.placement == Placement::kShard) value.placement = Placement::kReplicated;
    return value;
  };
  std::vector<RankValue> values;
  for (size_t i = 0; i < table().ValuesOf(of.expr).size(); ++i) {
    values.push_back(Select(condition, value_of(yes, i), value_of(no, i)));
  }
  RankValue out = InOne(table().LayoutOf(table().OperationOf(of.expr)), values, &table());
  if (out.placement == Placement::kReplicated) out.placement = of.placement;
  return out;
}

RankValue RankFunctions::Select(const RankValue& condition, const RankValue& yes,
                                const RankValue& no) {
  if (expressions_.AreMade() && AreSeveral(yes, no)) return SelectOfSeveral(condition, yes, no);
  RankValue out = yes;
  out.placement = JoinPlacements(condition.placement, JoinPlacements(yes.placement, no.placement));
  const auto is_share = [](const RankValue& value) {
    return value.placement == Placement::kShard || value.is_zero;
  };
  const bool are_shares = (yes.placement == Placement::kShard && is_share(no)) ||
                          (no.placement == Placement::kShard && is_share(yes));
  if (!expressions_.AreMade() && are_shares && condition.placement == Placement::kReplicated) {
    out.placement = Placement::kShard;  // of which layout, expressions tell
  }
  out.rank = -1;
  out.terms = 0;
  out.drawn_by = DrawOf({condition, yes, no});
  const auto is_gradient = [](const RankValue& value) {
    return value.is_zero || value.is_gradient || value.placement == Placement::kReplicated;
  };
  out.is_gradient = out.placement != Placement::kReplicated && condition.IsEqualOnRanks() &&
                    is_gradient(yes) && is_gradient(no);
  const auto is_summed = [](const RankValue& value) {
    return value.is_zero || value.is_summed || value.placement == Placement::kReplicated;
  };
  out.is_summed = out.is_gradient && is_summed(yes) && is_summed(no);
  out.averaged_across_ranks =
      (yes.averaged_across_ranks || no.averaged_across_ranks) && !out.IsOfSomeRanks();
  out.is_zero = yes.is_zero && no.is_zero;
  out.has_merged_rows = yes.has_merged_rows && no.has_merged_rows;
  out.has_samples_of_ranks = yes.has_samples_of_ranks && no.has_samples_of_ranks;
  out.is_gradient_of_samples = yes.is_gradient_of_samples && no.is_gradient_of_samples;
  if (!out.has_merged_rows && yes.rows != no.rows) {
    out.rows = RowsMadeOf("rows of a branch", {condition, yes, no});
  }
  out.Inherit(no);
  out.has_unknown_scale = out.has_unknown_scale || condition.has_unknown_scale;
  if (yes.is_zero) {
    out.unscaled_sums = no.unscaled_sums;
  } else if (!no.is_zero && yes.unscaled_sums != no.unscaled_sums) {
    out.is_mixed = out.has_unknown_scale = true;
  }
  if (!expressions_.AreMade()) return out;
  const bool same = yes.expr == no.expr && SameFactor(yes.factor, no.factor) &&
                    yes.placement == no.placement && yes.rank == no.rank;
  if (same) return yes;
  expressions_.SetSelect(condition, yes, no, &out);
  return out;
}

}  // namespace weft
