#include <algorithm>

#include "ops/analysis/values/rank_values.h"

namespace weft {

using Placement = RankValue::Placement;

std::string ToString(Placement placement) {
  switch (placement) {
    case Placement::kReplicated:
      return "equal on all ranks";
    case Placement::kLocal:
      return "rank-local";
    case Placement::kShard:
      return "sharded";
    case Placement::kParts:
      return "a part of the values of all ranks";
    case Placement::kPartialSum:
      return "a part of a sum";
    case Placement::kPartialMax:
      return "a part of a maximum";
    case Placement::kGathered:
      return "the values of all ranks, one after the other";
    case Placement::kRankSubset:
      return "the value of some of the ranks only";
  }
  return "unknown";
}

Placement JoinPlacements(Placement a, Placement b) {
  if (a == b) return a;
  for (Placement placement : {Placement::kLocal, Placement::kShard, Placement::kParts,
                              Placement::kPartialSum, Placement::kPartialMax}) {
    if (a == placement || b == placement) return Placement::kLocal;
  }
  return Placement::kRankSubset;
}

void RankValue::Inherit(const RankValue& in) {
  if (!first_nonlinear_op.valid()) first_nonlinear_op = in.first_nonlinear_op;
  if (!unscaled_in.valid()) unscaled_in = in.unscaled_in;
  is_mixed = is_mixed || in.is_mixed;
  has_unknown_scale = has_unknown_scale || in.has_unknown_scale;
  reductions = std::max(reductions, in.reductions);
}

void RankValue::ChangeUnscaledSums(int by) {
  const int changed = unscaled_sums + by;
  unscaled_sums = static_cast<int8_t>(std::clamp(changed, -100, 100));
  if (unscaled_sums != changed) has_unknown_scale = true;
}

}  // namespace weft
