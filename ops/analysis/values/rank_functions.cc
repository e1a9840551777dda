#include "ops/analysis/values/rank_functions.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/values/rank_shares.h"
#include "ops/analysis/values/rescaled_gradients.h"
#include "ops/schema/op_kinds.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/reduced_dim.h"
#include "ops/schema/row_sums.h"
#include "ops/schema/rows_ops.h"
#include "ops/schema/tensor_type.h"
#include "ops/schema/uniform_values.h"
#include "ops/schema/weft_attrs.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

using Placement = RankValue::Placement;

// Integers have no means.
bool IsFloatCast(const Op& op) {
  const auto is_floating = [&](absl::string_view attr) {
    const absl::optional<DType> dtype =
        DTypeFromProto(static_cast<int>(op.IntAttr(attr).value_or(-1)));
    return dtype.has_value() && IsFloating(*dtype);
  };
  return is_floating("in_dtype") && is_floating("out_dtype");
}

// What a schema says of single inputs.
Powers PowersOf(const SignatureFacts& facts) {
  return facts.schema == nullptr ? Powers::kNone : facts.schema->batch_rule().powers;
}

// To a type that holds all values of the other one.
bool Widens(const Op& op) {
  const auto size_of = [&](absl::string_view attr) -> size_t {
    const absl::optional<DType> dtype =
        DTypeFromProto(static_cast<int>(op.IntAttr(attr).value_or(-1)));
    return dtype.has_value() ? SizeOf(*dtype) : 0;
  };
  return size_of("out_dtype") > size_of("in_dtype") && size_of("in_dtype") > 0;
}

// Whether the op adds up elements along all axes, or all of unknown size and the first one among
// them: what it makes has no rows of samples.
bool SumsOverSamples(const Op& op, const RankMemory& memory) {
  if (!SumsAlongDims(op.type()) || op.input_args().size() != 1) return false;
  const absl::optional<TensorType> in = memory.TypeOf(op.input_args()[0]),
                                   out = memory.TypeOf(op.output_args()[0]);
  if (!in.has_value() || !out.has_value() || in->dims.empty()) return false;
  const absl::optional<std::vector<int64_t>> summed = op.IntsAttr("dim");
  const bool sums_all = ReducesAll(op) || (summed.has_value() && summed->size() == in->dims.size());
  return sums_all || (in->dims[0] == -1 && !absl::c_linear_search(out->dims, -1));
}

}  // namespace

absl::Span<const RankValue> RankFunctions::Of(const Op& op, const SignatureFacts& facts,
                                              absl::Span<const RankValue> ins) {
  ins_ = ins;
  outs_.assign(op.output_args().size(), RankValue());
  const auto holds_several = [&](const RankValue& in) { return HoldsSeveral(in, table()); };
  if (TakesPartOfFirst(op)) {
    RankValue part = ins_[0];
    if (!options_.IsOneRank()) part.placement = Placement::kShard;
    SetAll(part);
    return outs_;
  }
  // All of a share that a single rank has.
  const bool is_whole_share =
      options_.IsOneRank() && expressions_.AreMade() && ins.size() == 1 && holds_several(ins[0]);
  if (SumsSquares(op.type()) && ins.size() == 1 &&
      (is_whole_share || ins[0].placement == Placement::kShard)) {
    SetAll(PartialSum(op, facts));
    return outs_;
  }
  const auto is_partial = [](const RankValue& in) {
    return in.placement == Placement::kPartialSum;
  };
  if (std::any_of(ins.begin(), ins.end(), is_partial) && KeepsPartialSums(op, facts)) return outs_;
  if (UnscalesGradients(op.type()) || UpdatesLossScale(op.type())) {
    ScaleLosses(op, facts);
    return outs_;
  }
  if (expressions_.AreMade() && std::any_of(ins.begin(), ins.end(), holds_several)) {
    OfSeveral(op, facts);
    return outs_;
  }
  Transfer(op, facts);
  SetRowSums(op);
  if (!sums_.gradients.empty() && IsLossGrad(op)) CountGradientsOfSums(op);
  for (size_t i = 0; i < outs_.size(); ++i) {
    outs_[i].is_equal_if_finite = false;
    if (outs_[i].is_zero && HoldsRows(op, op.input_args().size() + i)) KeepRowsOfZeros(&outs_[i]);
  }
  return outs_;
}

// Ranks have sums over their own rows, which add up.
void RankFunctions::SetRowSums(const Op& op) {
  const RowSums sums = RowSumsOf(op);
  if (sums.outputs.empty()) return;
  const auto in = [&](absl::string_view slot) {
    const absl::Span<const Symbol> args = op.Input(slot);
    if (args.size() == 1) return ins_[args.data() - op.args().data()];
    RankValue unknown;
    unknown.placement = Placement::kLocal;
    return unknown;
  };
  std::vector<RankValue> made_of;
  for (absl::string_view slot : sums.common) made_of.push_back(in(slot));
  bool is_followed =
      absl::c_all_of(made_of, [](const RankValue& one) { return one.IsEqualOnRanks(); });
  Placement placement = Placement::kReplicated;
  if (!sums.rows.empty()) {
    made_of.push_back(in(sums.rows));
    const RankValue& rows = made_of.back();
    if (!rows.IsEqualOnRanks()) placement = Placement::kPartialSum;
    is_followed = is_followed && (rows.IsEqualOnRanks() ||
                                  (rows.placement == Placement::kLocal && !sums.are_divided));
  }
  for (absl::string_view slot : sums.outputs) {
    const absl::Span<const Symbol> out = op.Output(slot);
    if (out.empty()) continue;
    const std::string identity =
        absl::StrCat(slot, " of rows, ", op.FloatAttr("epsilon").value_or(0), ", ",
                     op.IntAttr("slot_dim").value_or(0));
    RankValue value;
    value.placement = is_followed ? placement : Placement::kLocal;
    if (!is_followed) value.first_nonlinear_op = op.id();
    outs_[out.data() - op.output_args().data()] =
        is_followed ? expressions_.Call(value, identity, made_of, op.type())
                    : expressions_.Opaque(value, identity, made_of, op.type());
  }
}

// Rows of zeros count in a sum, and for an update of the rows alone.
void RankFunctions::KeepRowsOfZeros(RankValue* out) {
  std::vector<ExprId> rows;
  for (const RankValue& in : ins_) {
    out->placement = JoinPlacements(out->placement, in.placement);
    out->Inherit(in);
    if (expressions_.AreMade()) rows.push_back(expressions_.Placed(in));
  }
  out->is_gradient = out->is_summed = out->placement != Placement::kReplicated;
  out->is_zero = false;
  out->factor = 1;
  if (expressions_.AreMade()) out->expr = expressions_.Named("rows of zeros", "rows", rows);
}

// The gradients of losses that are sums begin as n-th parts, but no op makes them so twice.
void RankFunctions::CountGradientsOfSums(const Op& op) {
  if (options_.IsOneRank()) return;
  for (size_t i = 0; i < outs_.size(); ++i) {
    const std::string name(program_.name(op.output_args()[i]));
    if (outs_[i].unscaled_sums != 0 || sums_.gradients.count(name) == 0) continue;
    outs_[i].ChangeUnscaledSums(-1);
    outs_[i].factor /= options_.RankFactor();
  }
}

void RankFunctions::Transfer(const Op& op, const SignatureFacts& facts) {
  if (SumsElements(op.type()) && AddsUpStack(op)) return;
  switch (facts.algebra) {
    case Algebra::kSum:
      return SetAll(Sum(op, ins_, std::vector<double>(ins_.size(), 1)));
    case Algebra::kCopy:
      if (ins_.empty()) break;
      SetAll(Sum(op, {ins_[facts.x]}, {1}));
      if (RowsRuleOf(facts.schema) != RowsRule::kMerges) return;
      for (RankValue& out : outs_) {
        out.has_merged_rows = true;
        out.rows = ExprId();
      }
      return;
    case Algebra::kAdd:
    case Algebra::kSubtract:
      return SetAll(AddOrSubtract(op, facts));
    case Algebra::kScale:
    case Algebra::kMultiply:
    case Algebra::kDivide: {
      const absl::optional<ConstantFactors::Factor> factor = constant_factors_.Of(op);
      if (!factor.has_value() || HoldsIntegers(op)) break;
      return SetAll(Multiple(op, *factor));
    }
    case Algebra::kCast:
      if (ins_.size() != 1) break;
      if (IsFloatCast(op)) return SetAll(Cast(op));
      return CastIntegers(op, facts);
    case Algebra::kConcat:
      if (ins_.size() == 1) return SetAll(ins_[0]);
      break;
    case Algebra::kSplitEqual:
      if (ins_.size() == 1 && outs_.size() == 1) return SetAll(ins_[0]);
      if (SplitGathered(op)) return;
      break;
    case Algebra::kReshape:
      if (StackGathered(op)) return;
      if (!MovesOneElement(op)) break;
      return SetAll(ins_[0]);
    case Algebra::kConstant:
      if (!ins_.empty()) break;
      [[fallthrough]];
    case Algebra::kFill:
    case Algebra::kZeros:
      if (FillsZeros(op, facts)) return SetAll(expressions_.ZeroValue());
      // Other ones begin a gradient that is part of the loss, as that of a penalty.
      if (IsLossGrad(op) && FillsFixedShape(op)) return;
      break;
    default:
      if (ins_.size() == 1 && outs_.size() == 1 && facts.is_elementwise &&
          op.BoolAttr(kPerRankAttr).value_or(false)) {
        return SetAll(PerRank(op, facts));
      }
      if (ReduceGathered(op)) return;
      break;
  }
  if (GradientFactorOf(op, facts.schema) != 1) return ApplyToRescaled(op, facts);
  Apply(op, facts);
  if (facts.algebra == Algebra::kBackward) FoldConstants(op);
}

void RankFunctions::FoldConstants(const Op& op) {
  for (const ConstantFactors::GradientFactor& gradient : constant_factors_.OfGradient(op)) {
    RankValue multiple = Multiple(op, gradient.factor);
    RankValue& out = outs_[gradient.output];
    multiple.is_summed = multiple.is_gradient && out.is_summed;
    out = multiple;
  }
}

// With a multiple of ones, as gradients begin: of fixed dims, or of those of an input, which do not
// depend on values. It may be a division by the number of ranks, as Paddle's sharding has it.
bool RankFunctions::FillsFixedShape(const Op& op) {
  if (outs_.size() != 1) return false;
  const absl::optional<TensorType> type = memory_.TypeOf(op.output_args()[0]);
  if (!type.has_value() || NumElements(type->dims) < 0) return false;
  const absl::optional<double> number = FilledNumber(op);
  // As an attribute has it.
  const float factor = static_cast<float>(number.value_or(0));
  if (!std::isfinite(factor) || factor == 0) return false;
  RankValue filled;
  filled.factor = ExactFactor(factor);
  if (expressions_.AreMade()) {
    filled.expr =
        expressions_.Named(absl::StrCat("fill ", ToString(*type)), std::string(op.type()));
  }
  const bool is_original =
      options_.original_ops != nullptr && (*options_.original_ops)[op.id().value()];
  if (!is_original && options_.setting.nranks.has_value() && !options_.IsOneRank() &&
      SameFactor(filled.factor * options_.RankFactor(), 1)) {
    filled.ChangeUnscaledSums(-1);
    events_.scales.push_back({op.id(), true});
  }
  SetAll(filled);
  return true;
}

// Kernels truncate multiples of integers.
bool RankFunctions::HoldsIntegers(const Op& op) const {
  const VarId var = memory_.Resolve(op.input_args()[0]);
  const auto tensor = var.valid() ? program_.var(var).Tensor() : absl::nullopt;
  if (!tensor.has_value()) return false;
  const absl::optional<DType> dtype = DTypeFromProto(tensor->data_type());
  return dtype.has_value() && !IsFloating(*dtype);
}

bool RankFunctions::HoldsRows(const Op& op, size_t arg) const {
  const VarId var = memory_.Resolve(op.args()[arg]);
  if (!var.valid() || program_.var(var).type() != pb::VarType::SELECTED_ROWS) return false;
  const absl::optional<TensorType> type = DeclaredType(program_.var(var));
  return !type.has_value() || type->kind == TensorType::Kind::kSelectedRows;
}

// How rows of a value are: not at all as others, if they are merged or `rows` is valid.
ExprId RankFunctions::RowsOf(const RankValue& in) {
  if (in.has_merged_rows) return expressions_.Named("merged rows", "merged");
  return in.rows.valid() ? in.rows : table().Zero();
}

ExprId RankFunctions::RowsMadeOf(absl::string_view operation, absl::Span<const RankValue> ins) {
  const auto is_plain = [](const RankValue& in) { return !in.has_merged_rows && !in.rows.valid(); };
  if (!expressions_.AreMade() || std::all_of(ins.begin(), ins.end(), is_plain)) return ExprId();
  std::vector<ExprId> rows;
  for (const RankValue& in : ins) rows.push_back(RowsOf(in));
  return expressions_.Named(std::string(operation), "rows", rows);
}

// An elementwise op keeps the rows of its only operand that has any.
void RankFunctions::SetRows(const Op& op, const SignatureFacts& facts, RankValue* out) {
  const RankValue* only = nullptr;
  int num_with_rows = 0;
  for (size_t i = 0; i < op.input_args().size(); ++i) {
    if (!HoldsRows(op, i)) continue;
    only = &ins_[i];
    ++num_with_rows;
  }
  if (RowsRuleOf(facts.schema) == RowsRule::kMergesFirst) {
    out->has_merged_rows = true;
  } else if (num_with_rows == 1 && facts.is_elementwise) {
    out->has_merged_rows = only->has_merged_rows;
    out->rows = only->rows;
  } else {
    out->rows = RowsMadeOf(absl::StrCat("rows by ", op.type()), ins_);
  }
}

// A single element keeps its value in any shape.
bool RankFunctions::MovesOneElement(const Op& op) const {
  const auto is_one = [&](Symbol name) {
    const absl::optional<TensorType> type = memory_.TypeOf(name);
    return type.has_value() && NumElements(type->dims) == 1;
  };
  const absl::Span<const Symbol> out = op.Output("Out");
  return ins_.size() == 1 && out.size() == 1 && is_one(op.input_args()[0]) && is_one(out[0]);
}

// A variable with several writers may hold other dims than it declares until the last of them.
bool RankFunctions::HoldsDeclaredDims(Symbol name) {
  if (num_writers_.empty()) {
    for (const Op& op : AllOps(program_)) {
      const OpSchema* const schema = FindOpSchema(op.type());
      // What a branch lists, ops of its block write.
      if (schema != nullptr && schema->Has(Trait::kBranch)) continue;
      const bool keeps_dims =
          schema != nullptr && (schema->Has(Trait::kCollective) || schema->Has(Trait::kStreamSync));
      for (Symbol out : op.output_args()) {
        const bool is_in_place = keeps_dims && absl::c_linear_search(op.input_args(), out);
        if (!is_in_place) ++num_writers_[out];
      }
    }
  }
  const auto found = num_writers_.find(name);
  return found == num_writers_.end() || found->second == 1;
}

// The sum of one element is that element, and the sum of a stack of such the sum of them.
bool RankFunctions::AddsUpStack(const Op& op) {
  if (ins_.size() != 1 || op.input_args().size() != 1 || outs_.size() != 1) return false;
  const absl::optional<TensorType> in = memory_.TypeOf(op.input_args()[0]);
  const absl::optional<TensorType> out = memory_.TypeOf(op.output_args()[0]);
  const bool adds_all =
      in.has_value() && out.has_value() && in->dtype == out->dtype && NumElements(out->dims) == 1;
  if (!adds_all || !HoldsDeclaredDims(op.output_args()[0])) return false;
  const RankValue whole = ins_[0];
  if (NumElements(in->dims) == 1 && HoldsDeclaredDims(op.input_args()[0])) {
    SetAll(whole);
    return true;
  }
  const bool is_of_rank =
      whole.placement == Placement::kReplicated || whole.placement == Placement::kLocal;
  if (!expressions_.AreMade() || !is_of_rank || whole.is_zero) {
    return false;
  }
  std::vector<RankValue> elements;
  for (ExprId element : undone_moves_.StackedIn(whole.expr)) {
    const ExpressionTable::Term term = table().Unscaled(element);
    elements.push_back(whole);
    elements.back().expr = term.expr;
    elements.back().factor *= term.factor;
    elements.back().is_zero = term.expr == table().Zero();
  }
  if (elements.empty()) return false;
  SetAll(Sum(op, elements, std::vector<double>(elements.size(), 1)));
  return true;
}

RankValue RankFunctions::AddOrSubtract(const Op& op, const SignatureFacts& facts) {
  double factors[2] = {1, 1};
  if (facts.algebra == Algebra::kSubtract) factors[facts.y] = -1;
  const int64_t axis = expressions_.AreMade() ? op.IntAttr("axis").value_or(-1) : -1;
  if (axis == -1) return Sum(op, ins_, factors);
  std::vector<RankValue> ins(ins_.begin(), ins_.end());
  RankValue& y = ins[facts.y];
  y.expr = expressions_.Named(absl::StrCat("broadcast ", axis),
                              absl::StrCat("broadcast[", axis, "]"), {y.expr});
  return Sum(op, ins, factors);
}

void RankFunctions::SetAll(const RankValue& value) { std::fill(outs_.begin(), outs_.end(), value); }

// Flags may become numbers, and flags again.
void RankFunctions::CastIntegers(const Op& op, const SignatureFacts& facts) {
  const RankValue in = ins_[0];
  Apply(op, facts);
  if (in.placement == Placement::kPartialMax) outs_[0].placement = in.placement;
  const bool is_known = in.placement == Placement::kReplicated ||
                        in.placement == Placement::kLocal || in.placement == Placement::kPartialMax;
  if (!expressions_.AreMade() || !is_known || in.is_zero || in.factor != 1) return;
  const VarId var = memory_.Resolve(op.input_args()[0]);
  const auto tensor = var.valid() ? program_.var(var).Tensor() : absl::nullopt;
  if (!tensor.has_value()) return;
  const int from = static_cast<int>(tensor->data_type());
  const int to = static_cast<int>(op.IntAttr("out_dtype").value_or(-1));
  if (DTypeFromProto(from) != DType::kBool && DTypeFromProto(to) != DType::kBool) return;
  outs_[0].expr = expressions_.Cast(in.expr, from, to, /*may_round=*/false);
}

RankValue RankFunctions::Cast(const Op& op) {
  RankValue out = ins_[0];
  // It rounds each part, unless KeepsPartialSums says otherwise.
  const bool rounds_parts = out.placement == Placement::kPartialSum && !Widens(op);
  if (rounds_parts) out.placement = Placement::kLocal;
  if (!expressions_.AreMade()) return out;
  if (rounds_parts) out.expr = expressions_.Placed(ins_[0]);
  // Nothing checks attribute in_dtype.
  const VarId in = memory_.Resolve(op.input_args()[0]);
  const auto tensor = in.valid() ? program_.var(in).Tensor() : absl::nullopt;
  // A gradient that ranks have reduced, or compute from equal data, does not count as one, but is
  // no state.
  const bool may_be_gradient =
      ins_[0].is_gradient || options_.IsOneRank() ||
      (ins_[0].placement == Placement::kReplicated && (IsBackward(op) || ins_[0].reductions > 0) &&
       in.valid() && !program_.var(in).persistable());
  out.expr =
      expressions_.Cast(out.expr, tensor.has_value() ? static_cast<int>(tensor->data_type()) : -1,
                        static_cast<int>(op.IntAttr("out_dtype").value_or(-1)),
                        options_.setting.gradients_are_rounded && may_be_gradient);
  out.terms = 0;
  return out;
}

// A function that is meant for what each rank has. Of a gradient, it counts as another gradient:
// one device does not compute it, as the mean of a function is not the function of the mean.
RankValue RankFunctions::PerRank(const Op& op, const SignatureFacts& facts) {
  const RankValue in = ins_[0];
  Apply(op, facts);
  if (in.placement != Placement::kLocal || !in.is_gradient) return outs_[0];
  RankValue out = in;
  out.terms = 0;
  out.factor = 1;
  return expressions_.Opaque(out, absl::StrCat("per rank ", op.id().value()), {in}, op.type());
}

RankValue RankFunctions::PartsOfRanks(const RankValue& in) {
  RankValue out = in;
  if (options_.IsOneRank()) return out;
  out.placement = Placement::kParts;
  out.is_gradient = out.is_summed = false;
  const bool is_known = in.IsEqualOnRanks() || in.drawn_by.valid();
  return is_known ? out : expressions_.Opaque(out, "parts of ranks", {in});
}

// Takes, of the parts of all ranks, the one that is of the first rank.
bool RankFunctions::TakesPartOfFirst(const Op& op) const {
  if (!Slices(op.type()) || ins_.size() != 1 || op.input_args().size() != 1) return false;
  const bool has_parts =
      ins_[0].placement == Placement::kParts || (options_.IsOneRank() && expressions_.AreMade() &&
                                                 HoldsSeveral(ins_[0], *expressions_.table()));
  if (!has_parts || op.output_args().size() != 1 || !options_.setting.nranks.has_value()) {
    return false;
  }
  const absl::optional<TensorType> all = memory_.TypeOf(op.input_args()[0]);
  const auto is = [&](absl::string_view attr, int64_t value) {
    return op.IntsAttr(attr) == std::vector<int64_t>{value};
  };
  const auto is_empty = [&](absl::string_view attr) {
    return op.IntsAttr(attr).value_or(std::vector<int64_t>()).empty();
  };
  return all.has_value() && all->dims.size() == 1 && is("axes", 0) && is("starts", 0) &&
         is("ends", all->dims[0] / *options_.setting.nranks) &&
         all->dims[0] % *options_.setting.nranks == 0 && is_empty("decrease_axis") &&
         is_empty("strides");
}

// Each rank sums over the elements that it has.
RankValue RankFunctions::PartialSum(const Op& op, const SignatureFacts& facts) {
  const RankValue in = ins_[0];
  const bool has_several = expressions_.AreMade() && HoldsSeveral(in, table());
  const size_t num_values = has_several ? table().ValuesOf(in.expr).size() : 1;
  std::vector<RankValue> sums;
  for (size_t v = 0; v < num_values; ++v) {
    RankValue own = has_several ? ValueOf(in, v, &table()) : in;
    if (own.is_zero) continue;
    own.placement = Placement::kReplicated;
    sums.push_back(Of(op, facts, {own})[0]);
  }
  ins_ = {};
  if (sums.empty()) return expressions_.ZeroValue();
  RankValue sum = sums[0];
  // One by one until they are added: casts come before that.
  if (has_several) sum = InOne(ExpressionTable::Layout(sums.size(), {1}), sums, &table());
  sum.placement = Placement::kPartialSum;
  return sum;
}

RankValue RankFunctions::Added(const Op& op, const RankValue& partial) {
  if (!expressions_.AreMade() || !HoldsSeveral(partial, table())) return partial;
  std::vector<RankValue> parts;
  const size_t num_values = table().ValuesOf(partial.expr).size();
  for (size_t v = 0; v < num_values; ++v) parts.push_back(ValueOf(partial, v, &table()));
  return Sum(op, parts, std::vector<double>(parts.size(), 1));
}

// Adding and widening what ranks have of a sum leaves parts of a sum.
bool RankFunctions::KeepsPartialSums(const Op& op, const SignatureFacts& facts) {
  const auto is_partial = [](const RankValue& in) {
    return in.is_zero || in.placement == Placement::kPartialSum;
  };
  if (ins_.empty() || !std::all_of(ins_.begin(), ins_.end(), is_partial)) return false;
  if (facts.algebra == Algebra::kSum) {
    std::vector<RankValue> parts;
    for (const RankValue& in : std::vector<RankValue>(ins_.begin(), ins_.end())) {
      parts.push_back(Added(op, in));
    }
    SetAll(Sum(op, parts, std::vector<double>(parts.size(), 1)));
    return true;
  }
  const bool widens = facts.algebra == Algebra::kCast && ins_.size() == 1 && IsFloatCast(op) &&
                      !ins_[0].is_zero && Widens(op);
  if (!widens) return false;
  const RankValue in = ins_[0];
  const bool has_several = expressions_.AreMade() && HoldsSeveral(in, table());
  const size_t num_values = has_several ? table().ValuesOf(in.expr).size() : 1;
  std::vector<RankValue> parts;
  for (size_t v = 0; v < num_values; ++v) {
    const RankValue own = has_several ? ValueOf(in, v, &table()) : in;
    ins_ = {&own, 1};
    parts.push_back(Cast(op));
    parts.back().placement = Placement::kPartialSum;
  }
  ins_ = {};
  SetAll(has_several ? InOne(ExpressionTable::Layout(parts.size(), {1}), parts, &table())
                     : parts[0]);
  return true;
}

// The elements that each rank has, of tensors of which it has one as a whole; those after the last
// tensor are padding of one rank or more. 0: tensors are cut.
int64_t RankFunctions::ElementsOfOwner(const ExpressionTable::Layout& layout) const {
  const int64_t nranks = options_.IsOneRank() ? 1 : options_.setting.nranks.value_or(0);
  if (nranks == 0 || layout.empty()) return 0;
  const int64_t own = NumElements(layout[0]);
  int64_t all = 0;
  for (size_t v = 0; v < layout.size(); ++v) {
    const int64_t elements = NumElements(layout[v]);
    if (elements != own && v + 1 < layout.size()) return 0;
    all += elements;
  }
  return all == own * nranks ? own : 0;
}

void RankFunctions::FindOwners() {
  for (const auto& [variable, tensors] : options_.setting.shares) {
    const VarId share = program_.block(0).FindVar(variable);
    const absl::optional<TensorType> type =
        share.valid() ? DeclaredType(program_.var(share)) : absl::nullopt;
    if (!type.has_value()) continue;
    const int64_t elements = NumElements(type->dims);
    bool& have_owners = have_owners_.try_emplace(elements, true).first->second;
    have_owners = have_owners && ElementsOfOwner(weft::LayoutOf(tensors)) == elements;
  }
}

bool RankFunctions::AreTensorsOfOwners(const Op& op) const {
  for (size_t i = 0; i < ins_.size(); ++i) {
    if (ins_[i].placement != Placement::kShard) continue;
    const absl::optional<TensorType> type = memory_.TypeOf(op.input_args()[i]);
    if (!type.has_value()) return false;
    const auto shares = have_owners_.find(NumElements(type->dims));
    if (shares == have_owners_.end() || !shares->second) return false;
  }
  return true;
}

absl::optional<ExpressionTable::Layout> RankFunctions::LayoutOfOperands(
    const Op& op, const SignatureFacts& facts) {
  const bool is_by_element = facts.is_elementwise && facts.algebra != Algebra::kRandom;
  const bool is_by_tensor = NeedsAllElements(op.type());
  OperationId layout;
  size_t num_common = 0;
  for (size_t i = 0; i < ins_.size() && (is_by_element || is_by_tensor); ++i) {
    const RankValue& in = ins_[i];
    if (in.is_zero) continue;
    const bool is_common = in.expr.valid() && table().AreCommon(in.expr);
    num_common = std::max(num_common, is_common ? table().ValuesOf(in.expr).size() : 0);
    if (HoldsSeveral(in, table()) && !is_common) {
      const OperationId own = table().OperationOf(in.expr);
      if (layout.valid() && layout != own) return absl::nullopt;
      const bool is_share = options_.IsOneRank() || in.placement == Placement::kShard;
      if (is_by_tensor && !is_share) return absl::nullopt;
      layout = own;
      continue;
    }
    // Any other operand counts for all elements.
    const Symbol name = op.args()[i];
    const absl::optional<TensorType> type = memory_.TypeOf(name);
    if (!type.has_value() || NumElements(type->dims) != 1) return absl::nullopt;
    if (in.placement != Placement::kReplicated) return absl::nullopt;
  }
  if (!layout.valid() || num_common > table().LayoutOf(layout).size()) return absl::nullopt;
  if (is_by_tensor && ElementsOfOwner(table().LayoutOf(layout)) == 0) return absl::nullopt;
  return table().LayoutOf(layout);
}

void RankFunctions::OfSeveral(const Op& op, const SignatureFacts& facts) {
  const std::vector<RankValue> ins(ins_.begin(), ins_.end());
  const absl::optional<ExpressionTable::Layout> layout = LayoutOfOperands(op, facts);
  if (!layout.has_value()) {
    RankValue out;
    out.placement = Placement::kLocal;
    for (const RankValue& in : ins) out.Inherit(in);
    out.has_unknown_scale = true;
    if (facts.param.count > 0 && facts.grad.count == facts.param.count) Update(op, facts);
    return SetAll(expressions_.Opaque(out, absl::StrCat(op.type(), " of several ", op.id().value()),
                                      ins, op.type()));
  }
  std::vector<std::vector<RankValue>> outs(op.output_args().size());
  std::vector<RankValue> own(ins.size());
  const size_t first_update = events_.updates.size();
  SignatureFacts of_value = facts;
  of_value.is_elementwise = true;  // or of the one tensor that a rank has
  for (size_t v = 0; v < layout->size(); ++v) {
    for (size_t i = 0; i < ins.size(); ++i) own[i] = ValueOf(ins[i], v, &table());
    const bool is_cut =
        NeedsAllElements(op.type()) && NumElements((*layout)[v]) != ElementsOfOwner(*layout);
    if (is_cut) {  // padding of several ranks
      for (std::vector<RankValue>& out : outs) {
        out.push_back(expressions_.Opaque(
            out[0], absl::StrCat("padding ", &out - &outs[0], " by ", op.id().value()), own,
            op.type()));
      }
      continue;
    }
    absl::Span<const RankValue> made = Of(op, of_value, own);
    // Padding of gradients stays zero, whatever number they are multiplied by.
    const bool is_product =
        facts.algebra == Algebra::kMultiply || facts.algebra == Algebra::kDivide;
    if (is_product && own[facts.x].is_zero) {
      SetAll(expressions_.ZeroValue());
      made = outs_;
    }
    for (size_t i = 0; i < outs.size(); ++i) outs[i].push_back(made[i]);
    // One update, of what holds of all.
    for (size_t u = first_update; v > 0 && u < first_update + facts.param.count; ++u) {
      const RankUpdate again = events_.updates[u + facts.param.count];
      events_.updates[u].param.Inherit(again.param);
      events_.updates[u].grad.Inherit(again.grad);
    }
    if (v > 0 && facts.param.count > 0) events_.updates.resize(first_update + facts.param.count);
  }
  ins_ = ins;
  outs_.resize(outs.size());
  for (size_t i = 0; i < outs.size(); ++i) {
    const int of = facts.in_place_of.empty() ? -1 : facts.in_place_of[i];
    const bool is_common = of >= 0 && ins[of].expr.valid() && table().AreCommon(ins[of].expr);
    if (is_common) outs[i].resize(table().ValuesOf(ins[of].expr).size());
    outs_[i] = InOne(is_common ? ExpressionTable::Layout() : *layout, outs[i], &table());
  }
  ins_ = {};
}

// The first dimension of a stacked value is the rank.
bool RankFunctions::StackGathered(const Op& op) {
  if (ins_.size() != 1 || ins_[0].placement != Placement::kGathered) return false;
  const absl::Span<const Symbol> out = op.Output("Out");
  if (out.size() != 1 || !options_.setting.nranks.has_value()) return false;
  if (!StacksRanks(op, *options_.setting.nranks, memory_.TypeOf(op.input_args()[0]))) return false;
  RankValue stacked = ins_[0];
  stacked.gathered_by = op.id();
  SetAll(stacked);
  return true;
}

bool RankFunctions::ReduceGathered(const Op& op) {
  if (ins_.size() != 1 || outs_.size() != 1) return false;
  if (ins_[0].placement != Placement::kGathered || !ins_[0].gathered_by.valid()) return false;
  const Op stacks = program_.op(ins_[0].gathered_by);
  const absl::optional<Reduction> reduction =
      ReducesFirstDim(op, stacks, memory_.TypeOf(stacks.input_args()[0]));
  if (!reduction.has_value()) return false;
  RankValue own = ins_[0];
  own.placement = own.rank == RankValue::kEqual ? Placement::kReplicated : Placement::kLocal;
  own.rank = -1;
  own.gathered_by = OpId();
  // Gathering them has counted as a reduction.
  if (own.reductions > 0) --own.reductions;
  RankValue all = AfterCollective(op, {"", CollectiveKind::kAllReduce, *reduction, ""}, own);
  all.reductions = ins_[0].reductions;
  all.has_merged_rows = false;
  SetAll(all);
  return true;
}

// Part i of a gathered value is the value of rank i.
bool RankFunctions::SplitGathered(const Op& op) {
  if (ins_.empty() || ins_[0].placement != Placement::kGathered) return false;
  const bool by_rank = op.IntAttr("axis").value_or(0) == 0 && ins_.size() == 1 &&
                       options_.HasRanks(op.IntAttr("num").value_or(0)) &&
                       options_.HasRanks(outs_.size());
  if (!by_rank) return false;
  for (size_t i = 0; i < outs_.size(); ++i) {
    outs_[i] = ins_[0];
    const bool are_equal = ins_[0].rank == RankValue::kEqual;
    outs_[i].placement = are_equal ? Placement::kReplicated : Placement::kRankSubset;
    outs_[i].rank = static_cast<int32_t>(i);
    outs_[i].gathered_by = op.id();
  }
  return true;
}

// Whether each rank chooses a value that all ranks have, such as the constants of two branches:
// what it chooses is its own, and linear in no gradient. In the backward pass, it chooses where the
// gradient of the loss goes, with which that pass begins on all ranks alike.
bool RankFunctions::ChoosesNoGradient(const Op& op, const SignatureFacts& facts) const {
  if (facts.algebra != Algebra::kMove || IsBackward(op)) return false;
  bool has_own = false;
  for (size_t i = 0; i < ins_.size(); ++i) {
    if (!facts.is_operand[i]) continue;
    const bool is_common = ins_[i].placement == Placement::kReplicated;
    if (is_common && !ins_[i].is_zero) return true;
    has_own = has_own || !is_common;
  }
  return !has_own;
}

void RankFunctions::ApplyToRescaled(const Op& op, const SignatureFacts& facts) {
  const absl::Span<const RankValue> given = ins_;
  std::vector<RankValue> ins(given.begin(), given.end());
  const double factor = ExactFactor(static_cast<float>(GradientFactorOf(op, facts.schema)));
  for (uint32_t i = facts.grad.first; i < facts.grad.first + facts.grad.count; ++i) {
    ins[i] = Multiple(op, {i, factor});
  }
  ins_ = ins;
  Apply(op, facts);
  ins_ = given;
}

// Any function of ins_.
void RankFunctions::Apply(const Op& op, const SignatureFacts& facts) {
  RankValue out;
  bool has_shard = false, only_shards = true, has_part = false;
  const Powers powers = PowersOf(facts);
  // The op may be linear in all inputs, in those of some slots, or in one factor of a product.
  int num_varying = 0;
  const bool has_operand =
      std::find(facts.is_operand.begin(), facts.is_operand.end(), true) != facts.is_operand.end();
  // Also where a tensor says the factor, and of matrices.
  const bool multiplies =
      facts.algebra == Algebra::kNone && powers == Powers::kProduct && ins_.size() == 2;
  const bool is_product = facts.algebra == Algebra::kMultiply ||
                          facts.algebra == Algebra::kDivide ||
                          (facts.algebra == Algebra::kScale && ins_.size() > 1) || multiplies;
  bool is_linear = (facts.is_linear || facts.algebra == Algebra::kBackward ||
                    facts.algebra == Algebra::kMove || facts.algebra == Algebra::kSparsify) &&
                   has_operand;
  if (is_product) {
    for (const RankValue& in : ins_) num_varying += in.placement == Placement::kReplicated ? 0 : 1;
    is_linear = num_varying <= 1 && (facts.algebra != Algebra::kDivide ||
                                     ins_[facts.y].placement == Placement::kReplicated);
  }
  // A gradient from which the forward pass goes on, such as that of a penalty: what it computes is
  // no gradient of a loss.
  const bool is_inner =
      facts.algebra == Algebra::kBackward && (op.role() & ~kRoleLoss) == kRoleForward;
  bool all_gradient = is_linear && !is_inner && !ChoosesNoGradient(op, facts),
       all_summed = all_gradient, has_gradient = false, has_power = false, takes_power = false,
       first_operand = true;
  int8_t first_unscaled_sums = 0;
  for (size_t i = 0; i < ins_.size(); ++i) {
    const RankValue& in = ins_[i];
    // Residuals begin with zeros (transpiler/verifier/communication/residuals.h).
    const bool is_zero =
        in.is_zero || (facts.algebra == Algebra::kSparsify && facts.is_residual[i] &&
                       in.placement == Placement::kReplicated);
    out.placement = i == 0 ? in.placement : JoinPlacements(out.placement, in.placement);
    has_shard = has_shard || in.placement == Placement::kShard;
    has_part = has_part || in.placement == Placement::kParts ||
               in.placement == Placement::kPartialSum || in.placement == Placement::kPartialMax;
    only_shards = only_shards &&
                  (in.placement == Placement::kShard || in.placement == Placement::kReplicated);
    out.rank = i == 0 || in.rank == out.rank ? in.rank : -1;
    out.Inherit(in);
    has_gradient = has_gradient || in.is_gradient;
    if (in.unscaled_sums != 0 && !is_zero) {
      if (!has_power) first_unscaled_sums = in.unscaled_sums;
      has_power = true;
      // The op is linear in operands only.
      if (!facts.is_operand[i]) takes_power = true;
    }
    if (!facts.is_operand[i] || is_zero) continue;
    if (in.placement != Placement::kReplicated && !in.is_gradient) all_gradient = false;
    if (in.placement != Placement::kReplicated && !in.is_summed) all_summed = false;
    if (first_operand) {
      out.unscaled_sums = in.unscaled_sums;
    } else if (in.unscaled_sums != out.unscaled_sums && is_linear && num_varying == 0) {
      out.is_mixed = out.has_unknown_scale = true;
    }
    first_operand = false;
  }
  if (out.placement == Placement::kGathered) out.placement = Placement::kRankSubset;
  if (is_product) {
    int unscaled_sums = 0;
    for (size_t i = 0; i < ins_.size(); ++i) {
      const bool is_divisor = facts.algebra == Algebra::kDivide && i == facts.y;
      unscaled_sums += is_divisor ? -ins_[i].unscaled_sums : ins_[i].unscaled_sums;
    }
    out.unscaled_sums = 0;
    out.ChangeUnscaledSums(unscaled_sums);
    if (out.placement == Placement::kLocal) {
      // Factors that are equal on all ranks do not travel again.
      out.reductions = 0;
      for (const RankValue& in : ins_) {
        if (!in.IsEqualOnRanks()) out.reductions = std::max(out.reductions, in.reductions);
      }
    }
    // Divided by a learning rate, for example.
    const auto is_averaged = [](const RankValue& in) { return in.averaged_across_ranks; };
    out.averaged_across_ranks = out.placement == Placement::kReplicated &&
                                std::any_of(ins_.begin(), ins_.end(), is_averaged);
  }
  out.is_zero = is_linear && !is_product && has_operand && first_operand;
  out.is_gradient = out.placement != Placement::kReplicated && all_gradient;
  out.is_summed = out.is_gradient && (all_summed || SumsOverSamples(op, memory_));
  if (out.placement != Placement::kReplicated && has_gradient && !all_gradient &&
      !out.first_nonlinear_op.valid()) {
    out.first_nonlinear_op = op.id();
  }
  const bool keeps_positive = powers == Powers::kPositive || powers == Powers::kSign;
  if (powers == Powers::kSign) out.unscaled_sums = 0;
  if (is_linear ? takes_power : has_power && !keeps_positive) {
    if (!is_linear) out.unscaled_sums = first_unscaled_sums;
    out.has_unknown_scale = true;
    if (!out.unscaled_in.valid()) out.unscaled_in = op.id();
  }
  // Dropout takes its seed only if another attribute says so.
  const bool may_ignore_seed =
      facts.schema != nullptr && facts.schema->FindAttr("fix_seed") != nullptr;
  const bool has_seed =
      op.IntAttr("seed").value_or(0) != 0 && op.BoolAttr("fix_seed").value_or(!may_ignore_seed);
  out.drawn_by = DrawOf(ins_);
  if (facts.algebra == Algebra::kRandom && !options_.IsOneRank() && !has_seed) {
    // An op of an unknown type may read data of its rank, too; another one with side effects
    // receives, or reads a file.
    const bool draws = facts.schema != nullptr && (!facts.schema->Has(Trait::kSideEffect) ||
                                                   facts.schema->FindAttr("seed") != nullptr);
    if (!draws) {
      out.drawn_by = OpId();
    } else if (out.placement == Placement::kReplicated) {
      out.drawn_by = op.id();
    }
    out.placement = Placement::kLocal;
    out.is_gradient = out.is_summed = false;
  }
  const bool is_unknown_source = facts.schema == nullptr && !facts.assumption.IsFunction() &&
                                 ins_.empty() && facts.algebra == Algebra::kNone;
  if (is_unknown_source && !options_.IsOneRank()) out.placement = Placement::kLocal;
  // Without expressions, nothing is said about one device.
  const bool is_by_tensor =
      NeedsAllElements(op.type()) && !expressions_.AreMade() && AreTensorsOfOwners(op);
  const bool shard_by_shard = has_shard && only_shards && (facts.is_elementwise || is_by_tensor);
  if (has_shard) out.placement = shard_by_shard ? Placement::kShard : Placement::kLocal;
  if (has_part) out.placement = Placement::kLocal;
  const bool is_update = facts.param.count > 0 && facts.grad.count == facts.param.count;
  if (is_update) {
    Update(op, facts);
    out.unscaled_sums = 0;
    out.reductions = 0;
    out.is_mixed = false;
    out.first_nonlinear_op = OpId();
    out.unscaled_in = OpId();
    out.is_gradient = out.is_summed = false;
  }
  SetAll(out);
  if (facts.algebra == Algebra::kBackward) FindSummed(op, facts);
  if (shard_by_shard) {
    // The powers of beta, for example, stay whole.
    for (size_t i = 0; i < outs_.size(); ++i) {
      const int of = facts.in_place_of[i];
      if (of >= 0) outs_[i].placement = ins_[of].placement;
    }
  }
  if (expressions_.AreMade()) {
    // What is selected of a multiple need not be the multiple of what is selected.
    const bool is_homogeneous = is_linear && !is_product && facts.algebra != Algebra::kSparsify;
    ApplyExpressions(op, facts, is_homogeneous,
                     shard_by_shard ? Operands::kShards : Operands::kWhole);
    if (facts.algebra == Algebra::kSparsify) MakeOpaqueParts(op);
  }
}

// The mean of parts that ranks select is not the part of the mean.
void RankFunctions::MakeOpaqueParts(const Op& op) {
  const std::vector<RankValue> ins(ins_.begin(), ins_.end());
  for (size_t i = 0; i < outs_.size(); ++i) {
    if (outs_[i].placement == Placement::kReplicated) continue;
    outs_[i] = expressions_.Opaque(outs_[i], absl::StrCat("part ", i, " by ", op.id().value()), ins,
                                   op.type());
  }
}

// Gradients of parameters, and of other values that do not depend on samples, are sums over
// samples.
void RankFunctions::FindSummed(const Op& op, const SignatureFacts& facts) {
  for (size_t i = 0; i < outs_.size(); ++i) {
    const int input = facts.forward_input[i];
    // If the op does not read the value, the name of the gradient tells which one it is.
    const VarId forward =
        input >= 0 ? memory_.Resolve(op.input_args()[input]) : ForwardOf(op.output_args()[i]);
    outs_[i].is_gradient_of_samples =
        forward.valid() && memory_.values()[forward.value()].has_samples_of_ranks;
    if (!outs_[i].is_gradient) continue;
    if (forward.valid()) {
      // A parameter, which the step did not compute from samples.
      outs_[i].is_summed = (program_.var(forward).persistable() && !memory_.IsHeld(forward)) ||
                           memory_.values()[forward.value()].placement == Placement::kReplicated;
      continue;
    }
    outs_[i].is_summed = std::all_of(ins_.begin(), ins_.end(), [](const RankValue& in) {
      return in.placement == Placement::kReplicated || in.is_summed;
    });
  }
}

VarId RankFunctions::ForwardOf(Symbol gradient) {
  const Symbol forward = gradient_names_.DifferentiatedName(gradient);
  return forward.valid() ? memory_.Resolve(forward) : VarId();
}

void RankFunctions::Update(const Op& op, const SignatureFacts& facts) {
  for (uint32_t i = 0; i < facts.param.count; ++i) {
    events_.updates.push_back(
        {op.id(), i, ins_[facts.param.first + i], ins_[facts.grad.first + i]});
  }
}

void RankFunctions::ApplyExpressions(const Op& op, const SignatureFacts& facts, bool is_homogeneous,
                                     Operands operands) {
  OperationId operation = operations_->Of(op);
  if (facts.algebra == Algebra::kRandom) {
    // Draws differ, but equal draws of two programs are equal.
    operation = operations_->Draw(op, runs_[operation]++);
  }
  operands_.clear();
  // f(a x, b y) = a f(x, b/a y). Which operand is the first depends on the operation alone, and not
  // on factors, so that multiples have one form: f(2a x, 2b y) = 2a f(x, b/a y). One that is zero
  // is so in any multiple.
  absl::optional<double> factor;
  const RowsRule rows_rule = RowsRuleOf(facts.schema);
  const bool takes_rows = rows_rule == RowsRule::kTakes;
  const bool updates_rows = facts.param.count > 0 && UpdatesRowsAlone(op, facts.schema);
  const Powers powers = PowersOf(facts);
  const bool is_positive = ins_.size() == 1 && ins_[0].factor > 0;
  const bool takes_sign = is_positive && powers == Powers::kSign;
  const bool keeps_factor =
      is_homogeneous || takes_sign || (is_positive && powers == Powers::kPositive);
  // A function of each row that is not linear.
  const bool is_product = facts.algebra == Algebra::kMultiply || facts.algebra == Algebra::kDivide;
  const bool depends_on_rows = !is_homogeneous && !is_product && facts.param.count == 0 &&
                               rows_rule != RowsRule::kMergesFirst;
  // sgd(a g, b rate) = sgd(a b g, rate).
  const absl::Span<const Symbol> rate = op.Input("LearningRate");
  const bool moves_rate = IsProductWithRate(op.type()) && facts.grad.count == 1 && rate.size() == 1;
  const size_t rate_arg = moves_rate ? rate.data() - op.args().data() : 0;
  const double rate_factor = moves_rate ? ins_[rate_arg].factor : 1;
  const auto gives_dims = [&](size_t i) {
    return facts.reads_dims && absl::c_linear_search(facts.forward_input, static_cast<int>(i));
  };
  const auto add_operand = [&](size_t i) {
    const RankValue& in = ins_[i];
    const bool is_operand = facts.is_operand[i];
    if (in.is_zero && is_operand) {
      operands_.push_back(table().Zero());
      return;
    }
    const bool is_pulled = keeps_factor && is_operand;
    if (is_pulled && !factor.has_value()) {
      // A factor that is 0, or no number, stays where it is.
      factor = std::isfinite(in.factor) && in.factor != 0 ? in.factor : 1;
    }
    // An elementwise op on shards computes the shard of its result.
    const ExprId expr = operands == Operands::kShards ? in.expr : expressions_.Placed(in);
    const bool is_alike = is_pulled && SameFactor(in.factor, *factor);
    double own = is_alike ? 1 : is_pulled ? in.factor / *factor : in.factor;
    if ((moves_rate && i == rate_arg) || gives_dims(i)) own = 1;
    if (moves_rate && i == facts.grad.first) own *= rate_factor;
    operands_.push_back(table().Scaled(expr, own));
    const bool tells_rows_apart = takes_rows || (depends_on_rows && HoldsRows(op, i));
    if ((tells_rows_apart && !in.has_merged_rows) || (updates_rows && HoldsRows(op, i))) {
      ExprId& operand = operands_.back();
      operand = tells_rows_apart
                    ? expressions_.Named("rows to merge", "rows", {operand, RowsOf(in)})
                    : expressions_.Named("rows", "rows", {operand});
    }
  };
  for (uint32_t i : operations_->OperandOrder(op)) add_operand(i);
  for (size_t i = op.input_args().size(); i < ins_.size(); ++i) add_operand(i);
  if (rows_rule == RowsRule::kIgnoresZeros) {
    for (ExprId& operand : operands_) operand = expressions_.UpToZeros(operand);
  }
  const ExprId first = table().Call(operation, operands_, operations_->NumOutputs(op));
  if (facts.algebra == Algebra::kNot && operands_.size() == 1) {
    table().NoteNegation(first, operands_[0]);
  }
  if (takes_rows && operands_.size() == 1 && ins_[0].has_merged_rows) {
    expressions_.NoteRows(first, operands_[0]);
  }
  for (size_t i = 0; i < outs_.size(); ++i) {
    RankValue& out = outs_[i];
    out.expr = out.is_zero ? table().Zero()
                           : ExpressionTable::Output(first, operations_->OutputIndex(op, i));
    out.factor = out.is_zero ? 0 : takes_sign ? 1 : factor.value_or(1);
    if (HoldsRows(op, op.input_args().size() + i)) SetRows(op, facts, &out);
  }
  if (operands == Operands::kWhole) PutBack(op, facts, first);
  CastMaster(op, facts);
}

// What the op has put back is what it was. Factors stay.
void RankFunctions::PutBack(const Op& op, const SignatureFacts& facts, ExprId first) {
  // A value of some ranks is marked as such.
  const auto is_marked = [](const RankValue& in) { return in.IsOfSomeRanks(); };
  if (std::any_of(ins_.begin(), ins_.end(), is_marked)) return;
  const bool is_one = facts.algebra == Algebra::kReshape || facts.algebra == Algebra::kSplitEqual;
  if (is_one && operands_.size() == 1) {
    const std::vector<ExprId> exprs = undone_moves_.Undo(op, facts.algebra, operands_[0]);
    for (size_t i = 0; i < exprs.size(); ++i) {
      if (!exprs[i].valid() || outs_[i].is_zero) continue;
      // A part with another factor than the first one.
      const ExpressionTable::Term part = table().Unscaled(exprs[i]);
      outs_[i].expr = part.expr;
      outs_[i].factor *= part.factor;
      if (exprs[i] == table().Zero()) {
        outs_[i].is_zero = true;
        outs_[i].factor = 0;
      }
    }
    if (!exprs.empty()) return;
    if (facts.algebra == Algebra::kSplitEqual) {
      std::vector<ExprId> parts;
      for (const RankValue& out : outs_) parts.push_back(out.expr);
      undone_moves_.RecordSplit(op, operands_[0], std::move(parts));
    }
  }
  const ExprId joined = facts.algebra == Algebra::kConcat && outs_.size() == 1
                            ? undone_moves_.JoinedBy(op, operands_)
                            : ExprId();
  if (joined.valid()) {
    const ExpressionTable::Term whole = table().Unscaled(joined);
    outs_[0].expr = whole.expr;
    outs_[0].factor *= whole.factor;
    return;
  }
  if (facts.algebra == Algebra::kReshape || facts.algebra == Algebra::kConcat) {
    undone_moves_.Record(op, facts.algebra, operands_, first);
  }
  const auto holds_declared = [this](Symbol in) { return HoldsDeclaredDims(in); };
  if (Stacks(op.type()) && absl::c_all_of(op.input_args(), holds_declared)) {
    undone_moves_.RecordStack(op, operands_, first);
  }
}

// A parameter with a master weight is the master weight in lower precision.
void RankFunctions::CastMaster(const Op& op, const SignatureFacts& facts) {
  const uint32_t num_inputs = op.signature().num_input_args;
  for (uint32_t i = 0; i < std::min(facts.master_out.count, facts.param_out.count); ++i) {
    const VarId param = memory_.Resolve(op.args(facts.param_out)[i]);
    const VarId master = memory_.Resolve(op.args(facts.master_out)[i]);
    if (!param.valid() || !master.valid()) continue;
    const auto tensor = program_.var(param).Tensor();
    if (!tensor.has_value()) continue;
    RankValue& out = outs_[facts.param_out.first - num_inputs + i];
    out = outs_[facts.master_out.first - num_inputs + i];
    out.expr = expressions_.Cast(out.expr, tensor->data_type());
  }
}

}  // namespace weft
