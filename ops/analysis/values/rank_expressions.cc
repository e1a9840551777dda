#include "ops/analysis/values/rank_expressions.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

using Placement = RankValue::Placement;
using Term = ExpressionTable::Term;

// A sum of more terms does not keep them.
constexpr size_t kMaxTerms = 64;

}  // namespace

RankExpressions::RankExpressions(ExpressionTable* table) : all_(table), table_(table) {
  if (table_ == nullptr) return;
  gathered_ = table_->Operation("gathered", "gathered");
  shard_ = table_->Operation("shard", "shard");
}

RankValue RankExpressions::ZeroValue() const {
  RankValue zero;
  zero.is_zero = true;
  zero.factor = 0;
  if (AreMade()) zero.expr = table_->Zero();
  return zero;
}

ExprId RankExpressions::Named(const std::string& identity, const std::string& label,
                              absl::Span<const ExprId> operands) {
  return table_->Call(table_->Operation(identity, label), operands);
}

ExprId RankExpressions::Cast(ExprId expr, int dtype) {
  const absl::optional<DType> type = DTypeFromProto(dtype);
  return table_->Cast(expr, type.has_value() ? std::string(DTypeName(*type)) : absl::StrCat(dtype));
}

ExprId RankExpressions::Cast(ExprId expr, int from, int to, bool may_round) {
  const auto source = cast_from_.find(expr);
  if (source != cast_from_.end() && source->second.is_exact && source->second.dtype == to) {
    return source->second.expr;
  }
  const ExprId cast = Cast(expr, to);
  const absl::optional<DType> before = DTypeFromProto(from), after = DTypeFromProto(to);
  const bool are_floats =
      before.has_value() && after.has_value() && IsFloating(*before) && IsFloating(*after);
  const bool widens = are_floats && SizeOf(*after) > SizeOf(*before);
  const bool rounds = are_floats && *before == DType::kFloat32 && SizeOf(*after) == 2;
  const bool is_flag = before.has_value() && *before == DType::kBool;
  const bool is_exact = widens || is_flag || (rounds && may_round);
  const auto [it, is_new] = cast_from_.try_emplace(cast, Source{expr, from, is_exact});
  // Another op casts the same value, from another type or without a gradient.
  if (!is_new && (it->second.dtype != from || !is_exact)) it->second.is_exact = false;
  return cast;
}

ExprId ValueOfRank(int rank, absl::string_view variable, ExpressionTable* table) {
  const std::string text = absl::StrCat("value_of_rank_", rank);
  return table->Call(table->Operation(text, text), {table->Initial(variable)});
}

ExprId PlacedExpr(const RankValue& value, ExpressionTable* table) {
  return RankExpressions(table).Placed(value);
}

ExprId RankExpressions::Placed(const RankValue& value) {
  switch (value.placement) {
    case Placement::kReplicated:
    case Placement::kLocal:
      return value.expr;
    case Placement::kShard:
      return table_->Call(shard_, {value.expr});
    case Placement::kParts:
      return Named("parts", "parts", {value.expr});
    case Placement::kPartialSum:
      return Named("part of a sum", "partial", {value.expr});
    case Placement::kPartialMax:
      return Named("part of a maximum", "partial", {value.expr});
    case Placement::kGathered:
      return table_->Call(gathered_, {value.expr});
    case Placement::kRankSubset:
      if (value.rank < 0) return value.expr;
      const std::string text = absl::StrCat("rank_", value.rank, "_of");
      return Named(text, text, {value.expr});
  }
  return value.expr;
}

RankValue RankExpressions::Opaque(RankValue out, absl::string_view operation,
                                  absl::Span<const RankValue> inputs, absl::string_view label) {
  out = Call(out, operation, inputs, label);
  if (table_ != nullptr) table_->SetOpaque(table_->OperationOf(out.expr));
  return out;
}

RankValue RankExpressions::Call(RankValue out, absl::string_view operation,
                                absl::Span<const RankValue> inputs, absl::string_view label) {
  if (table_ == nullptr) return out;
  std::vector<ExprId> operands;
  for (const RankValue& input : inputs) operands.push_back(Scaled(input));
  out.expr =
      table_->Call(table_->Operation(operation, label.empty() ? operation : label), operands);
  out.factor = 1;
  out.local_factor = 0;
  out.terms = 0;
  return out;
}

void RankExpressions::SetMean(const RankValue& in, RankValue* out) {
  out->terms = 0;
  out->local_factor = 0;
  if (table_ == nullptr || (in.is_gradient && in.is_summed)) return;
  if (in.terms == 0) {
    out->expr = table_->MeanOverRanks(WithoutGroupMeans(in.expr));
    return;
  }
  std::vector<Term> terms;
  for (const PlacedTerm& term : terms_[in.terms]) {
    const bool is_mean = term.is_same || term.is_summed;
    terms.push_back({is_mean ? term.expr : table_->MeanOverRanks(term.expr), term.factor});
  }
  double common = 1;
  out->expr = table_->Sum(&terms, &common);
  out->factor *= common;
  out->is_zero = common == 0;
}

ExprId RankExpressions::WithoutGroupMeans(ExprId expr) const {
  while (true) {
    const absl::Span<const ExprId> operands = table_->Operands(expr);
    if (table_->IsMeanOverGroups(expr)) {
      expr = operands[0];
      continue;
    }
    if (!table_->IsSelect(expr)) return expr;
    bool holds = true;
    const auto condition =
        placement_of_condition_.find(table_->WithoutNegations(operands[0], &holds));
    const bool is_same =
        condition != placement_of_condition_.end() && condition->second == Placement::kReplicated;
    const bool is_either =
        table_->IsMeanOverGroups(operands[1]) && table_->Operands(operands[1])[0] == operands[2];
    if (!is_same || !is_either) return expr;
    expr = operands[2];
  }
}

void RankExpressions::SetSum(absl::Span<const RankValue> ins, absl::Span<const double> factors,
                             bool keeps_terms, RankValue* out) {
  std::vector<Term> terms;
  bool has_local_terms = false;
  for (size_t i = 0; i < ins.size(); ++i) {
    if (ins[i].is_zero) continue;
    // A single operand, several shards and parts of sums keep their placement.
    const bool keeps_placement = ins.size() == 1 || out->placement == Placement::kShard ||
                                 out->placement == Placement::kPartialSum;
    terms.push_back({keeps_placement ? ins[i].expr : Placed(ins[i]), ins[i].factor * factors[i]});
    has_local_terms = has_local_terms || ins[i].terms != 0 ||
                      (ins[i].placement == Placement::kLocal && !ins[i].is_gradient);
  }
  if (keeps_terms && has_local_terms && out->placement == Placement::kLocal)
    KeepTerms(ins, factors, out);
  for (size_t i = 0; i < ins.size() && out->local_factor == 0; ++i) {
    // One device subtracts, too: the sign is no factor of the rank-local term.
    const double own = ins.size() > 1 ? std::abs(factors[i]) : factors[i];
    if (!ins[i].is_zero && !ins[i].IsEqualOnRanks()) out->local_factor = ins[i].factor * own;
  }
  double common = 1;
  out->expr = table_->Sum(&terms, &common);
  out->factor = common;
  out->is_zero = common == 0;
  // The factors of kept terms are relative to the factor of the whole value.
  if (out->terms != 0) {
    for (PlacedTerm& term : terms_[out->terms]) term.factor /= common == 0 ? 1 : common;
  }
}

void RankExpressions::KeepTerms(absl::Span<const RankValue> ins, absl::Span<const double> factors,
                                RankValue* out) {
  std::vector<PlacedTerm> placed;
  for (size_t i = 0; i < ins.size(); ++i) {
    const RankValue& in = ins[i];
    if (in.is_zero) continue;
    if (in.terms == 0) {
      placed.push_back({in.IsOfSomeRanks() ? Placed(in) : in.expr, in.factor * factors[i],
                        in.IsEqualOnRanks(), in.is_summed});
      continue;
    }
    for (const PlacedTerm& term : terms_[in.terms]) {
      placed.push_back(
          {term.expr, term.factor * in.factor * factors[i], term.is_same, term.is_summed});
    }
  }
  if (placed.size() <= 1 || placed.size() > kMaxTerms) return;
  out->terms = static_cast<uint32_t>(terms_.size());
  terms_.push_back(std::move(placed));
}

// Whether equal expressions are equal values. The mean of a condition over the ranks may have the
// expression that each rank has for its own (RankValues: ForwardReduction), and what rank 0 has
// given to all that of each rank: neither is the other.
bool RankExpressions::IsOneCondition(const RankValue& condition) {
  bool holds = true;
  const ExprId expr = table_->WithoutNegations(Scaled(condition), &holds);
  const auto found = placement_of_condition_.try_emplace(expr, condition.placement).first;
  if (found->second != condition.placement) found->second = Placement::kRankSubset;
  return found->second == Placement::kReplicated || found->second == Placement::kLocal;
}

void RankExpressions::Choose(const RankValue& condition, bool holds, RankValue* value) {
  const bool is_placed =
      value->placement == Placement::kReplicated || value->placement == Placement::kLocal;
  if (!IsOneCondition(condition) || !is_placed || value->is_zero) return;
  const ExprId chosen = table_->Given(Scaled(condition), holds, value->expr);
  if (chosen == value->expr || chosen == table_->Zero()) return;
  const Term term = table_->Unscaled(chosen);
  value->expr = term.expr;
  value->factor *= term.factor;
}

void RankExpressions::SetSelect(const RankValue& condition, RankValue yes, RankValue no,
                                RankValue* out) {
  Choose(condition, true, &yes);
  Choose(condition, false, &no);
  double factor = 1;
  ExprId a = table_->Zero(), b = table_->Zero();
  if (yes.is_zero || no.is_zero || SameFactor(yes.factor, no.factor)) {
    factor = yes.is_zero ? no.factor : yes.factor;
    if (!yes.is_zero) a = Placed(yes);
    if (!no.is_zero) b = Placed(no);
  } else {
    a = Scaled(yes);
    b = Scaled(no);
  }
  out->factor = out->is_zero ? 0 : factor;
  out->local_factor = yes.local_factor != 0 ? yes.local_factor : no.local_factor;
  out->expr = table_->Select(Scaled(condition), a, b);
}

}  // namespace weft
