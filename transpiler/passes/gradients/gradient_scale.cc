#include "transpiler/passes/gradients/gradient_scale.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_attrs.h"
#include "proto/op_role.h"

namespace weft {
namespace {

// An op of backward role that rewrites the gradient of a loss in place, and may divide by the
// number of ranks.
struct Division {
  OpId op;
  Symbol grad;
  absl::optional<int64_t> nranks;  // attribute nranks of the op
};

struct LossGradients {
  std::vector<Division> divisions;  // in op order
  std::vector<Symbol> undivided;
};

bool IsInPlace(const Op& op) {
  return op.input_args().size() == 1 && op.output_args().size() == 1 &&
         op.input_args()[0] == op.output_args()[0];
}

// Whether the op multiplies by a factor of the program's own, as for a scaled loss.
bool HasOwnFactor(const Op& op, absl::optional<int> nranks) {
  if (op.HasAttr(kNumRanksAttr) || !nranks.has_value()) return false;
  if (AlgebraOf(op, FindOpSchema(op.type())) != Algebra::kScale) return false;
  if (op.FloatAttr("bias").value_or(0) != 0) return true;
  const double factor = op.FloatAttr("scale").value_or(1);
  return std::abs(factor * *nranks - 1) > 1e-6;
}

// Without those of `sums`, which nobody divides.
LossGradients FindLossGradients(const Program& program, absl::optional<int> nranks,
                                const std::set<std::string>& sums = {}) {
  enum : char { kOther, kFilled, kDivided };
  std::vector<char> state(program.symbols().size(), kOther);
  std::vector<Symbol> filled;
  LossGradients found;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (BeginsBackward(op)) {
      for (Symbol symbol : op.output_args()) {
        if (sums.count(std::string(program.name(symbol))) > 0) continue;
        state[symbol.value()] = kFilled;
        filled.push_back(symbol);
      }
      continue;
    }
    if (filled.empty() || !IsBackward(op)) continue;
    if (!IsInPlace(op) || HasOwnFactor(op, nranks)) continue;
    const Symbol grad = op.output_args()[0];
    if (state[grad.value()] == kOther) continue;
    state[grad.value()] = kDivided;
    found.divisions.push_back({id, grad, op.IntAttr(kNumRanksAttr)});
  }
  for (Symbol symbol : filled) {
    if (state[symbol.value()] == kFilled) found.undivided.push_back(symbol);
  }
  return found;
}

absl::Status RefuseDivision(const Program& program, const LossGradients& losses) {
  if (losses.divisions.empty()) return absl::OkStatus();
  const Division& division = losses.divisions.front();
  return absl::FailedPreconditionError(
      absl::StrCat(program.op(division.op).DebugName(), " rewrites the loss gradient ",
                   program.name(division.grad), " in place",
                   division.nranks.has_value()
                       ? ": it is already divided; to divide no more, use scale none, or "
                         "reduce_method sum of pass grad-reduce"
                       : ", as a division by the number of ranks does; use scale none "
                         "if it is one, scale avg if "
                         "the factor is the program's own"));
}

// The gradients of groups are divided by the sizes of the groups, which only the reduction knows.
absl::Status RefuseGroupsIfLossesAreDivided(GradientScale scale, const PassContext& context) {
  const std::vector<RankGroup>& groups = context.target.groups;
  if (groups.empty()) return absl::OkStatus();
  if (scale == GradientScale::kLossGrad) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scale loss_grad divides by the number of all ranks, but the gradients of group '",
        groups[0].name, "' are reduced over ", groups[0].ranks.size(),
        " ranks; use scale avg or auto"));
  }
  const SumLosses& sums = context.target.forecast.sum_losses;
  if (scale == GradientScale::kAuto && sums.are_mixed()) {
    return absl::FailedPreconditionError(absl::StrCat(
        *sums.gradients.begin(),
        " is the gradient of a loss that is a sum over the batch, other losses are means: their "
        "gradients must be divided by the number of ranks, which differs between parameters, as "
        "group '",
        groups[0].name, "' has its own; expected losses of one kind"));
  }
  return absl::OkStatus();
}

// Whether servers hold a parameter.
bool HasServed(const ParamAttrsByName& attrs) {
  return std::any_of(attrs.begin(), attrs.end(),
                     [](const auto& param) { return param.second.parameter_server; });
}

}  // namespace

bool BeginsBackward(const Op& op) { return IsLossGrad(op) && !IsInPlace(op); }

void BindGradientScale(OptionBinder& bind, GradientScale* field) {
  bind.Choice("scale", field,
              "where gradients are divided by the number of ranks: at the gradient of the loss, in "
              "the reduction (avg), or nowhere; auto: nowhere for losses that are sums over the "
              "batch, else loss_grad, or avg if the number is unknown",
              {{"auto", GradientScale::kAuto},
               {"loss_grad", GradientScale::kLossGrad},
               {"avg", GradientScale::kAvg},
               {"none", GradientScale::kNone}});
}

Claims::Gradients GradientsUnder(GradientScale scale, const PassContext& context) {
  if (scale == GradientScale::kNone) return Claims::Gradients::kSummed;
  const bool by_loss = scale == GradientScale::kAuto && context.target.forecast.sum_losses.any();
  return by_loss ? Claims::Gradients::kByLoss : Claims::Gradients::kAveraged;
}

absl::StatusOr<GradientScale> Resolve(GradientScale scale, const PassContext& context) {
  const SumLosses& sums = context.target.forecast.sum_losses;
  const bool known = context.target.cluster.nranks().has_value();
  WEFT_RETURN_IF_ERROR(RefuseGroupsIfLossesAreDivided(scale, context));
  const bool averages = !context.target.groups.empty() ||
                        (HasServed(context.target.param_attrs) && !sums.are_mixed());
  if (scale == GradientScale::kAuto && averages) {
    return sums.are_all ? GradientScale::kNone : GradientScale::kAvg;
  }
  if (scale == GradientScale::kAuto) {
    if (sums.are_all) return GradientScale::kNone;
    if (sums.are_mixed() && !known) {
      return absl::FailedPreconditionError(absl::StrCat(
          *sums.gradients.begin(),
          " is the gradient of a loss that is a sum over the batch, other losses are means: their "
          "gradients must be divided by the number of ranks, which is unknown; give it as "
          "option:nranks N, or the endpoints as option:endpoints"));
    }
    return known ? GradientScale::kLossGrad : GradientScale::kAvg;
  }
  if (scale == GradientScale::kLossGrad && !known) {
    return absl::InvalidArgumentError(
        "scale loss_grad divides by the number of ranks, which is unknown; give it as "
        "option:nranks N, or the endpoints as option:endpoints, or use scale avg");
  }
  return scale;
}

absl::StatusOr<bool> ReductionAverages(GradientScale scale, const Program& program,
                                       const PassContext& context) {
  const SumLosses& sums = context.target.forecast.sum_losses;
  const Claims::Gradients claim = GradientsUnder(scale, context);
  const bool by_loss = claim == Claims::Gradients::kByLoss;
  if (claim == Claims::Gradients::kSummed || (by_loss && sums.are_all)) return false;
  const bool is_auto = scale == GradientScale::kAuto;
  WEFT_RETURN_IF_ERROR(RefuseGroupsIfLossesAreDivided(scale, context));
  LossGradients losses = FindLossGradients(program, context.target.cluster.nranks(),
                                           by_loss ? sums.gradients : std::set<std::string>());
  if (is_auto && !context.target.groups.empty()) {
    WEFT_RETURN_IF_ERROR(RefuseDivision(program, losses));
  }
  if (scale == GradientScale::kAvg || (is_auto && !by_loss && losses.divisions.empty())) {
    // The user says whose the other factors are.
    const auto is_open = [](const Division& division) { return !division.nranks.has_value(); };
    losses.divisions.erase(
        std::remove_if(losses.divisions.begin(), losses.divisions.end(), is_open),
        losses.divisions.end());
    WEFT_RETURN_IF_ERROR(RefuseDivision(program, losses));
    return true;
  }
  if (!losses.undivided.empty() || losses.divisions.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("scale ", is_auto ? "auto" : "loss_grad", ": ",
                     losses.undivided.empty()
                         ? "no op fills the gradient of a loss (role backward|loss, 0x101)"
                         : absl::StrCat("loss gradient ", program.name(losses.undivided.front()),
                                        " is not divided by the number of ranks"),
                     by_loss ? ", although other losses are sums over the batch" : "",
                     "; run pass scale-loss-grad first", by_loss ? "" : ", or use scale avg"));
  }
  for (const Division& division : losses.divisions) {
    const std::string name = program.op(division.op).DebugName();
    if (!division.nranks.has_value()) {
      if (scale == GradientScale::kLossGrad) continue;  // the user asked for it
      return absl::FailedPreconditionError(absl::StrCat(
          name, " rewrites the loss gradient ", program.name(division.grad),
          " in place, but does not say for how many ranks (attribute nranks); use scale loss_grad "
          "if it divides by their number, avg or none if not"));
    }
    if (context.target.cluster.nranks().has_value() &&
        *context.target.cluster.nranks() != *division.nranks) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, ": divides the loss gradient ", program.name(division.grad), " for ",
                       *division.nranks, " ranks, expected ", *context.target.cluster.nranks()));
    }
  }
  return false;
}

absl::Status RefuseScaledLossGradient(const Program& program, absl::optional<int> nranks) {
  return RefuseDivision(program, FindLossGradients(program, nranks));
}

}  // namespace weft
