#include "ops/analysis/rank_value.h"

#include <algorithm>

namespace weft {

using Place = RankValue::Place;

std::string ToString(Place place) {
  switch (place) {
    case Place::kReplicated:
      return "equal on all ranks";
    case Place::kLocal:
      return "rank-local";
    case Place::kShard:
      return "sharded";
    case Place::kGathered:
      return "the values of all ranks, one after the other";
    case Place::kOfRanks:
      return "the value of some of the ranks only";
  }
  return "unknown";
}

Place JoinPlaces(Place a, Place b) {
  if (a == b) return a;
  for (Place place : {Place::kLocal, Place::kShard}) {
    if (a == place || b == place) return Place::kLocal;
  }
  return Place::kOfRanks;
}

void RankValue::ChangePower(int by) {
  const int changed = power + by;
  power = static_cast<int8_t>(std::max(-100, std::min(100, changed)));
  if (power != changed) is_distorted = true;
}

}  // namespace weft
