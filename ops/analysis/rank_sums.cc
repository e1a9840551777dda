#include "ops/analysis/rank_sums.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ops/schema/op_attrs.h"
#include "proto/op_role.h"

namespace weft {
namespace {

using Place = RankValue::Place;

bool IsForward(const Op& op) {
  return (op.role() & (kRoleBackward | kRoleOptimize | kRoleDist | kRoleNotSpecified)) == 0;
}

}  // namespace

// The parts of all ranks: n of them, each once.
bool RankSums::AreAllRanks(absl::Span<const RankValue> ins) const {
  if (!ranks_.Is(ins.size())) return false;
  std::vector<bool> seen(ins.size(), false);
  for (const RankValue& in : ins) {
    if (in.place != Place::kOfRanks || in.rank < 0 || in.rank >= static_cast<int>(seen.size()) ||
        seen[in.rank] || in.expr != ins[0].expr || !SameFactor(in.factor, ins[0].factor) ||
        in.power != ins[0].power || in.gathered_by != ins[0].gathered_by) {
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
    own.place = Place::kLocal;
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
    const bool is_own = !in.IsSame();
    if (is_first) {
      out.place = in.place;
      out.rank = in.rank;
      out.gathered_by = in.gathered_by;
      out.power = in.power;
    } else {
      out.place = JoinPlaces(out.place, in.place);
      if (out.rank != in.rank || in.place == Place::kOfRanks) out.rank = -1;
      if (out.power != in.power) out.is_mixed = out.is_distorted = true;
    }
    if (is_own && local == nullptr) local = &in;
    is_first = false;
    if (in.place != Place::kReplicated) {
      all_gradient = all_gradient && in.is_gradient;
      all_summed = all_summed && in.is_summed;
    }
    out.has_met = out.has_met || in.has_met;
    if (!out.bent_by.valid()) out.bent_by = in.bent_by;
    if (!out.unscaled_in.valid()) out.unscaled_in = in.unscaled_in;
    out.is_mixed = out.is_mixed || in.is_mixed;
    out.is_distorted = out.is_distorted || in.is_distorted;
    out.reductions = std::max(out.reductions, in.reductions);
  }
  if (is_first) {
    out.is_zero = true;
    out.factor = 0;
    if (expressions_.AreMade()) out.expr = expressions_.table()->Zero();
    return out;
  }
  out.is_gradient = out.place != Place::kReplicated && all_gradient;
  out.is_summed = out.is_gradient && all_summed;
  out.has_met = out.has_met && out.IsSame();
  if (local != nullptr) out.power = local->power;
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
  const bool is_loss_grad = IsBackward(op) && out.place == Place::kReplicated &&
                            out.reductions == 0 && op.input_args()[0] == op.output_args()[0];
  const bool counts = divides && (op.HasAttr(kNumRanksAttr) || out.power > 0 || is_loss_grad);
  if (counts) out.ChangePower(-1);
  if (observer_ != nullptr) observer_->OnScale(op, counts);
  return out;
}

}  // namespace weft
