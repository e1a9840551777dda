#include "ops/analysis/rank_branches.h"

#include <algorithm>

namespace weft {

using Place = RankValue::Place;

RankValue SelectOnRanks(const RankValue& condition, const RankValue& yes, const RankValue& no,
                        RankExpressions* expressions) {
  RankValue out = yes;
  out.place = JoinPlaces(condition.place, JoinPlaces(yes.place, no.place));
  out.rank = -1;
  out.terms = 0;
  const auto is_gradient = [](const RankValue& value) {
    return value.is_zero || value.is_gradient || value.place == Place::kReplicated;
  };
  out.is_gradient =
      out.place != Place::kReplicated && condition.IsSame() && is_gradient(yes) && is_gradient(no);
  const auto is_summed = [](const RankValue& value) {
    return value.is_zero || value.is_summed || value.place == Place::kReplicated;
  };
  out.is_summed = out.is_gradient && is_summed(yes) && is_summed(no);
  out.has_met = yes.has_met || no.has_met;
  out.is_zero = yes.is_zero && no.is_zero;
  out.is_mixed = yes.is_mixed || no.is_mixed;
  out.is_distorted = yes.is_distorted || no.is_distorted || condition.is_distorted;
  out.reductions = std::max(yes.reductions, no.reductions);
  if (yes.is_zero) {
    out.power = no.power;
  } else if (!no.is_zero && yes.power != no.power) {
    out.is_mixed = out.is_distorted = true;
  }
  if (!out.bent_by.valid()) out.bent_by = no.bent_by;
  if (!out.unscaled_in.valid()) out.unscaled_in = no.unscaled_in;
  if (!expressions->AreMade()) return out;
  const bool same = yes.expr == no.expr && SameFactor(yes.factor, no.factor) &&
                    yes.place == no.place && yes.rank == no.rank;
  if (same) return yes;
  expressions->SetSelect(condition, yes, no, &out);
  return out;
}

}  // namespace weft
