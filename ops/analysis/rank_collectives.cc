#include "ops/analysis/rank_collectives.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace weft {

using Place = RankValue::Place;

RankValue RankCollectives::After(const Op& op, const CollectiveOp& collective,
                                 const RankValue& in) {
  RankValue out = in;
  if (out.reductions < 255) ++out.reductions;
  if (ranks_.IsOne()) return out;  // whatever it does, a single rank keeps its value
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      if (collective.reduction == Reduction::kSum) return Sum(op, in);
      if (collective.reduction == Reduction::kAvg) {
        out = Mean(op, in);
        if (CountsAsMean(in)) {
          out.ChangePower(-1);
          out.factor /= ranks_.AsFactor();
        }
        return out;
      }
      if (in.is_gradient) out.bent_by = op.id();
      out.place = Place::kReplicated;
      out.is_gradient = out.is_summed = false;
      return expressions_.Call(
          out, absl::StrCat("all-reduce ", ReductionName(collective.reduction)), {in});
    case CollectiveKind::kReduce:
      out.place = Place::kLocal;
      out.is_gradient = out.is_summed = false;
      return expressions_.Opaque(out, "reduce", {in});
    case CollectiveKind::kReduceScatter:
      if (in.place != Place::kLocal && in.place != Place::kReplicated) {
        out.place = Place::kLocal;
        out.is_gradient = out.is_summed = false;
        return expressions_.Opaque(out, "reduce-scatter", {in});
      }
      out = Sum(op, in);
      out.place = Place::kShard;
      return out;
    case CollectiveKind::kAllGather:
      if (in.place == Place::kShard) {
        out.place = Place::kReplicated;
      } else if (in.place == Place::kLocal) {
        out.place = Place::kGathered;
      } else {
        return expressions_.Opaque(out, "all-gather", {in});
      }
      return out;
    case CollectiveKind::kBroadcast:
      if (in.place == Place::kShard) return expressions_.Opaque(out, "broadcast", {in});
      if (in.place != Place::kLocal) return in;
      out.place = Place::kOfRanks;
      out.rank = static_cast<int32_t>(op.IntAttr(collective.root_attr).value_or(0));
      return out;
  }
  return out;
}

RankValue RankCollectives::Sum(const Op& op, const RankValue& in) {
  RankValue out = Mean(op, in);
  if (CountsAsMean(in)) return out;
  out.ChangePower(1);
  out.factor *= ranks_.AsFactor();
  return out;
}

RankValue RankCollectives::Mean(const Op& op, const RankValue& in) {
  RankValue out = in;
  if (out.reductions < 255) ++out.reductions;
  if (in.place == Place::kShard) return expressions_.Opaque(out, "all-reduce of parts", {in});
  if (in.place != Place::kLocal) return out;
  out.place = Place::kReplicated;
  out.is_gradient = out.is_summed = false;
  out.has_met = true;
  // The ranks' rows are those of different samples.
  if (in.is_gradient && !in.is_summed && !out.bent_by.valid()) out.bent_by = op.id();
  expressions_.SetMean(in, &out);
  return out;
}

}  // namespace weft
