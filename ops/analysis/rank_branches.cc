#include "ops/analysis/rank_branches.h"

#include <algorithm>

namespace weft {

using Placement = RankValue::Placement;

RankValue SelectOnRanks(const RankValue& condition, const RankValue& yes, const RankValue& no,
                        RankExpressions* expressions) {
  RankValue out = yes;
  out.placement = JoinPlacements(condition.placement, JoinPlacements(yes.placement, no.placement));
  out.rank = -1;
  out.terms = 0;
  const auto is_gradient = [](const RankValue& value) {
    return value.is_zero || value.is_gradient || value.placement == Placement::kReplicated;
  };
  out.is_gradient = out.placement != Placement::kReplicated && condition.IsEqualOnRanks() &&
                    is_gradient(yes) && is_gradient(no);
  const auto is_summed = [](const RankValue& value) {
    return value.is_zero || value.is_summed || value.placement == Placement::kReplicated;
  };
  out.is_summed = out.is_gradient && is_summed(yes) && is_summed(no);
  out.averaged_across_ranks = yes.averaged_across_ranks || no.averaged_across_ranks;
  out.is_zero = yes.is_zero && no.is_zero;
  out.is_mixed = yes.is_mixed || no.is_mixed;
  out.has_unknown_scale =
      yes.has_unknown_scale || no.has_unknown_scale || condition.has_unknown_scale;
  out.reductions = std::max(yes.reductions, no.reductions);
  if (yes.is_zero) {
    out.unscaled_sums = no.unscaled_sums;
  } else if (!no.is_zero && yes.unscaled_sums != no.unscaled_sums) {
    out.is_mixed = out.has_unknown_scale = true;
  }
  if (!out.first_nonlinear_op.valid()) out.first_nonlinear_op = no.first_nonlinear_op;
  if (!out.unscaled_in.valid()) out.unscaled_in = no.unscaled_in;
  if (!expressions->AreMade()) return out;
  const bool same = yes.expr == no.expr && SameFactor(yes.factor, no.factor) &&
                    yes.placement == no.placement && yes.rank == no.rank;
  if (same) return yes;
  expressions->SetSelect(condition, yes, no, &out);
  return out;
}

}  // namespace weft
