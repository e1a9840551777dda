#include "ops/analysis/rank_collectives.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace weft {

using Placement = RankValue::Placement;

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
          out.ChangeUnscaledSums(-1);
          out.factor /= ranks_.AsFactor();
        }
        return out;
      }
      if (in.is_gradient) out.first_nonlinear_op = op.id();
      out.placement = Placement::kReplicated;
      out.is_gradient = out.is_summed = false;
      return expressions_.Call(
          out, absl::StrCat("all-reduce ", ReductionName(collective.reduction)), {in});
    case CollectiveKind::kReduce:
      out.placement = Placement::kLocal;
      out.is_gradient = out.is_summed = false;
      return expressions_.Opaque(out, "reduce", {in});
    case CollectiveKind::kReduceScatter:
      if (in.placement != Placement::kLocal && in.placement != Placement::kReplicated) {
        out.placement = Placement::kLocal;
        out.is_gradient = out.is_summed = false;
        return expressions_.Opaque(out, "reduce-scatter", {in});
      }
      out = Sum(op, in);
      out.placement = Placement::kShard;
      return out;
    case CollectiveKind::kAllGather:
      if (in.placement == Placement::kShard) {
        out.placement = Placement::kReplicated;
      } else if (in.placement == Placement::kLocal) {
        out.placement = Placement::kGathered;
      } else {
        return expressions_.Opaque(out, "all-gather", {in});
      }
      return out;
    case CollectiveKind::kBroadcast:
      if (in.placement == Placement::kShard) return expressions_.Opaque(out, "broadcast", {in});
      if (in.placement != Placement::kLocal) return in;
      out.placement = Placement::kFromSomeRanks;
      out.rank = static_cast<int32_t>(op.IntAttr(collective.root_attr).value_or(0));
      return out;
  }
  return out;
}

RankValue RankCollectives::Sum(const Op& op, const RankValue& in) {
  RankValue out = Mean(op, in);
  if (CountsAsMean(in)) return out;
  out.ChangeUnscaledSums(1);
  out.factor *= ranks_.AsFactor();
  return out;
}

RankValue RankCollectives::Mean(const Op& op, const RankValue& in) {
  RankValue out = in;
  if (out.reductions < 255) ++out.reductions;
  if (in.placement == Placement::kShard)
    return expressions_.Opaque(out, "all-reduce of parts", {in});
  if (in.placement != Placement::kLocal) return out;
  out.placement = Placement::kReplicated;
  out.is_gradient = out.is_summed = false;
  out.averaged_across_ranks = true;
  // The ranks' rows are those of different samples.
  if (in.is_gradient && !in.is_summed && !out.first_nonlinear_op.valid())
    out.first_nonlinear_op = op.id();
  expressions_.SetMean(in, &out);
  return out;
}

}  // namespace weft
