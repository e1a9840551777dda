#include "ops/analysis/rank_sums.h"

#include <algorithm>
#include <vector>

#include "ops/schema/op_attrs.h"
#include "proto/op_role.h"

namespace weft {
namespace {

using Placement = RankValue::Placement;

bool IsForward(const Op& op) {
  return (op.role() & (kRoleBackward | kRoleOptimize | kRoleDist | kRoleNotSpecified)) == 0;
}

}  // namespace

// The parts of all ranks: n of them, each once.
bool RankSums::AreAllRanks(absl::Span<const RankValue> ins) const {
  if (!ranks_.Is(ins.size())) return false;
  std::vector<bool> seen(ins.size(), false);
  for (const RankValue& in : ins) {
    if (in.placement != Placement::kFromSomeRanks || in.rank < 0 ||
        in.rank >= static_cast<int>(seen.size()) || seen[in.rank] || in.expr != ins[0].expr ||
        !SameFactor(in.factor, ins[0].factor) || in.unscaled_sums != ins[0].unscaled_sums ||
        in.gathered_by != ins[0].gathered_by) {
      return false;
    }
    seen[in.rank] = true;
  }
  return true;
}

RankValue RankSums::Sum(const Op& op, absl::Span<const RankValue> ins,
                        absl::Span<const double> factors) {
  const bool all_one = std::all_of(factors.begin(), factors.end(), [](double f) { return f == 1; });
  if (ins.size() > 1 && all_one && AreAllRanks(ins)) {
    RankValue own = ins[0];
    own.placement = Placement::kLocal;
    RankValue sum = collectives_.Sum(op, own);
    sum.reductions = ins[0].reductions;
    sum.rank = -1;
    return sum;
  }
  RankValue out;
  bool is_first = true, all_gradient = true, all_summed = true;
  const RankValue* local = nullptr;
  for (const RankValue& in : ins) {
    if (in.is_zero) continue;
    const bool is_own = !in.IsEqualOnRanks();
    if (is_first) {
      out.placement = in.placement;
      out.rank = in.rank;
      out.gathered_by = in.gathered_by;
      out.unscaled_sums = in.unscaled_sums;
    } else {
      out.placement = JoinPlacements(out.placement, in.placement);
      if (out.rank != in.rank || in.placement == Placement::kFromSomeRanks) out.rank = -1;
      if (out.unscaled_sums != in.unscaled_sums) out.is_mixed = out.has_unknown_scale = true;
    }
    if (is_own && local == nullptr) local = &in;
    is_first = false;
    if (in.placement != Placement::kReplicated) {
      all_gradient = all_gradient && in.is_gradient;
      all_summed = all_summed && in.is_summed;
    }
    out.averaged_across_ranks = out.averaged_across_ranks || in.averaged_across_ranks;
    if (!out.first_nonlinear_op.valid()) out.first_nonlinear_op = in.first_nonlinear_op;
    if (!out.unscaled_in.valid()) out.unscaled_in = in.unscaled_in;
    out.is_mixed = out.is_mixed || in.is_mixed;
    out.has_unknown_scale = out.has_unknown_scale || in.has_unknown_scale;
    out.reductions = std::max(out.reductions, in.reductions);
  }
  if (is_first) {
    out.is_zero = true;
    out.factor = 0;
    if (expressions_.AreMade()) out.expr = expressions_.table()->Zero();
    return out;
  }
  out.is_gradient = out.placement != Placement::kReplicated && all_gradient;
  out.is_summed = out.is_gradient && all_summed;
  out.averaged_across_ranks = out.averaged_across_ranks && out.IsEqualOnRanks();
  if (local != nullptr) out.unscaled_sums = local->unscaled_sums;
  if (expressions_.AreMade()) {
    expressions_.SetSum(ins, factors, /*keeps_terms=*/!IsForward(op), &out);
  }
  return out;
}

RankValue RankSums::Multiple(const Op& op, const RankValue& in, double factor) {
  RankValue out = Sum(op, {in}, {factor});
  // A division by the number of ranks: where the op says so, where a sum over them goes before, or
  // where the gradient of a loss is divided before the backward pass.
  const bool is_original = original_ops_ != nullptr && (*original_ops_)[op.id().value()];
  const bool divides = !is_original && ranks_.IsKnown() && !ranks_.IsOne() &&
                       SameFactor(factor * ranks_.AsFactor(), 1);
  const bool is_loss_grad = IsBackward(op) && out.placement == Placement::kReplicated &&
                            out.reductions == 0 && op.input_args()[0] == op.output_args()[0];
  const bool counts =
      divides && (op.HasAttr(kNumRanksAttr) || out.unscaled_sums > 0 || is_loss_grad);
  if (counts) out.ChangeUnscaledSums(-1);
  if (observer_ != nullptr) observer_->OnScale(op, counts);
  return out;
}

}  // namespace weft
