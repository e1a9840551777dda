// The values of ops that scale lists of gradients in mixed precision, tensor by tensor, so that it
// does not matter which tensors are in one list, or in one buffer.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/analysis/values/rank_functions.h"
#include "ops/analysis/values/rank_shares.h"
#include "ops/schema/op_kinds.h"

namespace weft {
namespace {

using Placement = RankValue::Placement;

size_t ArgOf(const Op& op, absl::Span<const Symbol> slot) { return slot.data() - op.args().data(); }

bool IsShare(const RankValue& value) { return value.placement == Placement::kShard; }

}  // namespace

void RankFunctions::ScaleLosses(const Op& op, const SignatureFacts& facts) {
  const std::vector<RankValue> ins(ins_.begin(), ins_.end());
  Transfer(op, facts);
  const size_t x = ArgOf(op, op.Input("X")), count = op.Input("X").size();
  for (size_t i = x; i < x + count; ++i) {
    if (HoldsRows(op, i)) return;  // as any function of all of them
  }
  // Layer 1 says what is missing.
  if (op.Output("Out").size() != count) return;
  if (UnscalesGradients(op.type())) {
    if (op.Input("Scale").size() != 1 || op.Output("FoundInfinite").size() != 1) return;
    Unscale(op, ins);
  } else {
    if (op.Input("FoundInfinite").size() != 1) return;
    UpdateLossScale(op, ins);
  }
  ins_ = {};
}

// A set, not a list, of the tensors that are searched together.
ExprId RankFunctions::AnyNotFinite(absl::Span<const RankValue> values) {
  std::vector<ExprId> tensors;
  for (const RankValue& value : values) {
    const bool has_several = HoldsSeveral(value, table());
    const size_t num_values = has_several ? table().ValuesOf(value.expr).size() : 1;
    for (size_t v = 0; v < num_values; ++v) {
      RankValue own = has_several ? ValueOf(value, v, &table()) : value;
      if (own.is_zero) continue;
      if (IsShare(own)) own.placement = Placement::kReplicated;
      tensors.push_back(expressions_.Scaled(own));
    }
  }
  std::sort(tensors.begin(), tensors.end());
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  return expressions_.Named("any is not finite", "not finite", tensors);
}

// Out[i] is X[i] / Scale, unless any of X is not finite: then it is anything.
void RankFunctions::Unscale(const Op& op, const std::vector<RankValue>& ins) {
  const size_t num_inputs = op.input_args().size(), x = ArgOf(op, op.Input("X"));
  const size_t count = op.Input("X").size(), out = ArgOf(op, op.Output("Out")) - num_inputs;
  const absl::Span<const RankValue> tensors = absl::MakeConstSpan(ins).subspan(x, count);
  const RankValue& scale = ins[ArgOf(op, op.Input("Scale"))];
  RankValue& found = outs_[ArgOf(op, op.Output("FoundInfinite")) - num_inputs];
  const bool has_shares = std::any_of(tensors.begin(), tensors.end(), IsShare);
  const bool are_parts = std::all_of(tensors.begin(), tensors.end(), [](const RankValue& in) {
    return IsShare(in) || in.placement == Placement::kReplicated;
  });
  if (has_shares && are_parts && scale.placement == Placement::kReplicated) {
    found.placement = Placement::kPartialMax;
    for (size_t i = 0; i < count; ++i) {
      outs_[out + i].placement = IsShare(tensors[i]) ? Placement::kShard : Placement::kLocal;
      outs_[out + i].is_equal_if_finite = true;
    }
  } else if (has_shares) {
    return;
  }
  if (!expressions_.AreMade()) return;
  found.expr = AnyNotFinite(tensors);
  found.factor = 1;
  // Of all ranks: where a rank has found none, others may have.
  RankValue any = found;
  if (has_shares) any.placement = Placement::kReplicated;
  for (size_t i = 0; i < count; ++i) {
    RankValue anything = outs_[out + i];
    const bool has_several = HoldsSeveral(tensors[i], table());
    if (has_shares || has_several) {
      anything = expressions_.Opaque(
          anything, absl::StrCat(op.type(), " ", i, " of ", op.id().value()), ins, op.type());
    }
    std::vector<RankValue> values;
    const size_t num_values = has_several ? table().ValuesOf(tensors[i].expr).size() : 1;
    for (size_t v = 0; v < num_values; ++v) {
      RankValue own = has_several ? ValueOf(tensors[i], v, &table()) : tensors[i];
      if (has_shares) own.placement = anything.placement = Placement::kReplicated;
      RankValue unscaled = anything;
      unscaled.expr = expressions_.Named("unscale", "unscale",
                                         {expressions_.Placed(own), expressions_.Scaled(scale)});
      unscaled.factor = own.factor;
      unscaled.is_zero = own.is_zero;
      values.push_back(Chosen(any, anything, unscaled, outs_[out + i]));
    }
    outs_[out + i] = Together(tensors[i], values);
  }
}

// Out[i] is zero if any was not finite, else X[i]. The next scale depends on no tensor.
void RankFunctions::UpdateLossScale(const Op& op, const std::vector<RankValue>& ins) {
  const size_t num_inputs = op.input_args().size(), x = ArgOf(op, op.Input("X"));
  const size_t count = op.Input("X").size(), out = ArgOf(op, op.Output("Out")) - num_inputs;
  const absl::Span<const RankValue> tensors = absl::MakeConstSpan(ins).subspan(x, count);
  std::vector<RankValue> scalars;
  for (absl::string_view slot :
       {"FoundInfinite", "PrevLossScaling", "InGoodSteps", "InBadSteps", "StopUpdate"}) {
    for (const Symbol& arg : op.Input(slot)) scalars.push_back(ins[&arg - op.args().data()]);
  }
  const RankValue& found = scalars[0];
  const bool has_shares = std::any_of(tensors.begin(), tensors.end(), IsShare);
  const bool are_replicated = std::all_of(
      scalars.begin(), scalars.end(),
      [](const RankValue& scalar) { return scalar.placement == Placement::kReplicated; });
  if (!are_replicated && has_shares) return;
  if (are_replicated) {
    for (size_t i = 0; i < outs_.size(); ++i) {
      const bool is_tensor = i >= out && i < out + count;
      outs_[i].placement = is_tensor ? tensors[i - out].placement : Placement::kReplicated;
      if (!is_tensor) outs_[i].is_gradient = outs_[i].is_summed = false;
      if (is_tensor && BecomesEqual(found, tensors[i - out])) {
        outs_[i].placement = Placement::kReplicated;
      }
    }
  }
  if (!expressions_.AreMade()) return;
  std::string identity = "loss scale";
  for (const char* attr : {"decr_every_n_nan_or_inf", "incr_every_n_steps"}) {
    absl::StrAppend(&identity, " ", op.IntAttr(attr).value_or(0));
  }
  for (const char* attr : {"decr_ratio", "incr_ratio"}) {
    absl::StrAppendFormat(&identity, " %.9g", op.FloatAttr(attr).value_or(0));
  }
  absl::StrAppend(&identity, " ", op.BoolAttr("stop_update").value_or(false));
  for (const char* slot : {"LossScaling", "OutGoodSteps", "OutBadSteps"}) {
    for (const Symbol& arg : op.Output(slot)) {
      RankValue& value = outs_[&arg - op.output_args().data()];
      value = expressions_.Call(value, absl::StrCat(slot, " by ", identity), scalars, slot);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const bool has_several = HoldsSeveral(tensors[i], table());
    const size_t num_values = has_several ? table().ValuesOf(tensors[i].expr).size() : 1;
    std::vector<RankValue> values;
    for (size_t v = 0; v < num_values; ++v) {
      RankValue own = has_several ? ValueOf(tensors[i], v, &table()) : tensors[i];
      if (has_shares) own.placement = Placement::kReplicated;
      values.push_back(Chosen(found, expressions_.ZeroValue(), own, outs_[out + i]));
    }
    outs_[out + i] = Together(tensors[i], values);
  }
}

// Where ranks differ, it becomes zero.
bool RankFunctions::BecomesEqual(const RankValue& found, const RankValue& tensor) {
  if (tensor.placement != Placement::kLocal || !tensor.is_equal_if_finite) return false;
  if (!expressions_.AreMade()) return true;
  const ExprId condition = expressions_.Scaled(found);
  return table().Given(condition, false, tensor.expr) != tensor.expr;
}

// Zeros are zeros in any case.
RankValue RankFunctions::Chosen(const RankValue& condition, const RankValue& yes,
                                const RankValue& no, RankValue out) {
  if (!no.is_zero) {
    expressions_.SetSelect(condition, yes, no, &out);
    return out;
  }
  const Placement placement = out.placement;
  out = expressions_.ZeroValue();
  out.placement = placement;
  return out;
}

// Of values that `of` holds, or its only one.
RankValue RankFunctions::Together(const RankValue& of, absl::Span<const RankValue> values) {
  if (!HoldsSeveral(of, table())) return values[0];
  RankValue one = InOne(table().LayoutOf(table().OperationOf(of.expr)), values, &table());
  one.placement = of.placement;
  return one;
}

}  // namespace weft
