// The values of collectives' outputs on ranks.
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "ops/analysis/values/rank_functions.h"
#include "proto/op_role.h"

namespace weft {

using Placement = RankValue::Placement;

RankValue RankFunctions::AfterCollective(const Op& op, const CollectiveOp& collective,
                                         const RankValue& in) {
  RankValue out = in;
  if (out.reductions < 255) ++out.reductions;
  if (in.placement == Placement::kPartialMax) {
    if (collective.kind != CollectiveKind::kAllReduce || collective.reduction != Reduction::kMax) {
      out.placement = Placement::kLocal;
      return expressions_.Opaque(out, "parts of a maximum", {in});
    }
    out.placement = Placement::kReplicated;
    out.reductions = in.reductions;  // it reduces no gradient
    return out;
  }
  if (in.placement == Placement::kPartialSum) {
    if (collective.kind == CollectiveKind::kAllReduce && collective.reduction == Reduction::kAvg) {
      out = Added(op, in);
      out.placement = Placement::kReplicated;
      out.ChangeUnscaledSums(-1);
      out.factor /= options_.RankFactor();
      return out;
    }
    if (collective.kind != CollectiveKind::kAllReduce || collective.reduction != Reduction::kSum) {
      out.placement = Placement::kLocal;
      return expressions_.Opaque(out, "parts of a sum", {in});
    }
    out = Added(op, in);
    out.placement = Placement::kReplicated;
    return out;
  }
  if (options_.IsOneRank()) return out;  // a single rank keeps its value
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      if (collective.reduction == Reduction::kSum) return SumOverRanks(op, in);
      if (collective.reduction == Reduction::kAvg) {
        out = MeanOverRanks(op, in);
        if (CountsAsMean(in)) {
          out.ChangeUnscaledSums(-1);
          out.factor /= options_.RankFactor();
        }
        return out;
      }
      // The largest of equal values is each of them.
      if (in.placement == Placement::kReplicated && collective.reduction != Reduction::kProd) {
        return in;
      }
      if (in.is_gradient) out.first_nonlinear_op = op.id();
      out.placement = Placement::kReplicated;
      out.is_gradient = out.is_summed = false;
      return expressions_.Call(
          out, absl::StrCat("all-reduce ", ReductionName(collective.reduction)), {in});
    case CollectiveKind::kReduce:
      if (reduces_for_all_.contains(op.id())) return SumOverRanks(op, in);
      out.placement = Placement::kLocal;
      out.is_gradient = out.is_summed = false;
      return expressions_.Opaque(out, "reduce", {in});
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kSend:
      out.placement = Placement::kLocal;
      out.is_gradient = out.is_summed = false;
      return expressions_.Opaque(out, CollectiveKindName(collective.kind), {in});
    case CollectiveKind::kReduceScatter:
      // Of the samples that all ranks have gathered, all have the same gradient, or each has what
      // its own part of the loss adds to it. Summed over the ranks, the part of a rank is n times
      // that of one device, as is the gradient that a rank computes of its own samples.
      if (in.is_gradient_of_samples && collective.reduction == Reduction::kSum && IsBackward(op) &&
          (in.placement == Placement::kReplicated ||
           (in.placement == Placement::kLocal && in.is_gradient && in.is_summed))) {
        out.placement = Placement::kLocal;
        out.is_gradient = true;
        out.is_summed = out.is_gradient_of_samples = false;
        out.reductions = 0;
        return out;
      }
      if (in.placement != Placement::kLocal && in.placement != Placement::kReplicated) {
        out.placement = Placement::kLocal;
        out.is_gradient = out.is_summed = false;
        return expressions_.Opaque(out, "reduce-scatter", {in});
      }
      out = SumOverRanks(op, in);
      out.placement = Placement::kShard;
      return out;
    case CollectiveKind::kAllGather:
      if (in.placement == Placement::kShard) {
        // It puts together what belongs together: no reduction.
        out.placement = Placement::kReplicated;
        out.reductions = in.reductions;
      } else if (in.placement == Placement::kLocal) {
        out.placement = Placement::kGathered;
      } else if (in.placement == Placement::kReplicated) {
        out.placement = Placement::kGathered;
        out.rank = RankValue::kEqual;
      } else {
        return expressions_.Opaque(out, "all-gather", {in});
      }
      return out;
    case CollectiveKind::kBroadcast:
      if (!in.IsEqualOnRanks() && in.placement != Placement::kLocal) {
        out.placement = Placement::kLocal;
        return expressions_.Opaque(out, "broadcast", {in});
      }
      out.rank = static_cast<int32_t>(op.IntAttr(collective.root_attr).value_or(0));
      // The program of another rank may begin with another value.
      if (in.placement != Placement::kLocal &&
          !(options_.is_startup && options_.setting.rank.value_or(out.rank) != out.rank)) {
        return in;
      }
      out.averaged_across_ranks = false;
      // The draw of one rank is as good as the draw of one device.
      if (in.drawn_by.valid() && !options_.is_startup) {
        out.placement = Placement::kReplicated;
        out.is_gradient = out.is_summed = false;
        out.rank = -1;
        out.drawn_by = OpId();
        return out;
      }
      out.placement = Placement::kRankSubset;
      return out;
  }
  return out;
}

RankValue RankFunctions::SumOverRanks(const Op& op, const RankValue& in) {
  RankValue out = MeanOverRanks(op, in);
  if (CountsAsMean(in)) return out;
  out.ChangeUnscaledSums(1);
  out.factor *= options_.RankFactor();
  return out;
}

RankValue RankFunctions::MeanOverRanks(const Op& op, const RankValue& in) {
  RankValue out = in;
  if (out.reductions < 255) ++out.reductions;
  if (!in.IsEqualOnRanks() && in.placement != Placement::kLocal) {
    return expressions_.Opaque(out, "all-reduce of parts", {in});
  }
  if (in.placement != Placement::kLocal) return out;
  out.placement = Placement::kReplicated;
  out.is_gradient = out.is_summed = false;
  out.drawn_by = OpId();
  out.averaged_across_ranks = true;
  // Ranks have rows of different samples.
  if (in.is_gradient && !in.is_summed && !out.first_nonlinear_op.valid()) {
    out.first_nonlinear_op = op.id();
  }
  expressions_.SetMean(in, &out);
  return out;
}

}  // namespace weft
