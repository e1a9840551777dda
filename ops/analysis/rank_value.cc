#include "ops/analysis/rank_value.h"

#include <algorithm>

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
    case Placement::kGathered:
      return "the values of all ranks, one after the other";
    case Placement::kFromSomeRanks:
      return "the value of some of the ranks only";
  }
  return "unknown";
}

Placement JoinPlacements(Placement a, Placement b) {
  if (a == b) return a;
  for (Placement placement : {Placement::kLocal, Placement::kShard}) {
    if (a == placement || b == placement) return Placement::kLocal;
  }
  return Placement::kFromSomeRanks;
}

void RankValue::ChangeUnscaledSums(int by) {
  const int changed = unscaled_sums + by;
  unscaled_sums = static_cast<int8_t>(std::max(-100, std::min(100, changed)));
  if (unscaled_sums != changed) has_unknown_scale = true;
}

}  // namespace weft
