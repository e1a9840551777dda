#include "ops/analysis/values/expressions.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

// The rounding error of 1 minus n times 1/n in single precision.
constexpr double kCancelled = 2e-7;
// Other sums do not expand a sum of more terms: repeated addition would cost the square of their
// number.
constexpr size_t kMaxExpanded = 64;
const std::vector<double>* const kNoFactors = new std::vector<double>();

// Six digits, unless these are those of an integer that the factor is not.
std::string FactorText(double factor) {
  std::string text;
  for (int digits = 6; digits <= 9; ++digits) {
    text = absl::StrFormat("%.*g", digits, factor);
    double rounded = 0;
    if (!absl::SimpleAtod(text, &rounded) || rounded != std::round(rounded)) break;
    if (SameFactor(factor, rounded)) break;
  }
  return text;
}

// Messages show an excerpt of long texts around the first difference.
constexpr size_t kMaxText = 64;

size_t StartOfDifference(absl::string_view a, absl::string_view b) {
  const size_t common =
      std::mismatch(a.begin(), a.begin() + std::min(a.size(), b.size()), b.begin()).first -
      a.begin();
  return common < kMaxText / 2 ? 0 : common - kMaxText / 4;
}

std::string Excerpt(absl::string_view text, size_t from) {
  from = std::min(from, text.size());
  return absl::StrCat(from > 0 ? "..." : "", text.substr(from, kMaxText),
                      text.size() - from > kMaxText ? "..." : "");
}

}  // namespace

// The convergents of the continued fraction of `factor`, while numerator or denominator is small.
double ExactFactor(float factor) {
  constexpr double kMaxSmall = 1 << 10;
  double p = 1, last_p = 0, q = 0, last_q = 1, rest = factor;
  while (std::isfinite(rest)) {
    const double whole = std::floor(rest);
    std::tie(p, last_p) = std::make_pair(whole * p + last_p, p);
    std::tie(q, last_q) = std::make_pair(whole * q + last_q, q);
    if (std::min(std::abs(p), q) > kMaxSmall) break;
    if (static_cast<float>(p / q) == factor) return p / q;
    rest = 1 / (rest - whole);
  }
  return factor;
}

ExpressionTable::ExpressionTable() : slots_(1 << 10, 0) {
  sum_ = OperationOfKind(OperationKind::kSum, "sum of", "sum");
  mean_ = Operation("mean over ranks", "mean_over_ranks");
  select_ = Operation("select", "select");
  common_ = Operation("always equal", "common");
  layouts_.emplace(common_, Layout());
  zero_ = Call(Operation("zeros", "0"), {});
}

OperationId ExpressionTable::Operation(absl::string_view identity, absl::string_view label,
                                       DetailsOf details) {
  const auto found = operation_of_.find(identity);
  if (found != operation_of_.end()) return found->second;
  const OperationId id(static_cast<uint32_t>(operations_.size()));
  const auto added = operation_of_.emplace(std::string(identity), id).first;
  operations_.push_back({std::string(label), &added->first, details});
  return id;
}

OperationId ExpressionTable::OperationOfKind(OperationKind kind, absl::string_view identity,
                                             absl::string_view label) {
  const OperationId operation = Operation(identity, label);
  operations_[operation.value()].kind = kind;
  return operation;
}

ExprId ExpressionTable::Cast(ExprId expr, absl::string_view dtype) {
  return Call(OperationOfKind(OperationKind::kCast, absl::StrCat("cast ", dtype),
                              absl::StrCat("cast[", dtype, "]")),
              {expr});
}

ExprId ExpressionTable::Call(OperationId operation, absl::Span<const ExprId> operands,
                             uint32_t num_outputs) {
  const uint32_t hash = static_cast<uint32_t>(absl::HashOf(operation, operands));
  const uint32_t mask = static_cast<uint32_t>(slots_.size()) - 1;
  uint32_t slot = hash & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const uint32_t call = slots_[slot] - 1;
    if (hashes_[call] != hash || calls_[call].operation != operation) continue;
    if (OperandsOf(calls_[call]) == operands) return calls_[call].first_output;
  }
  const uint32_t call = static_cast<uint32_t>(calls_.size());
  const ExprId first(static_cast<uint32_t>(call_of_.size()));
  calls_.push_back({operation, static_cast<uint32_t>(operands_.size()),
                    static_cast<uint32_t>(operands.size()), first});
  hashes_.push_back(hash);
  // `operands` may be a part of operands_.
  const size_t begin = operands_.size();
  operands_.resize(begin + operands.size());
  std::copy(operands.begin(), operands.end(), operands_.begin() + begin);
  call_of_.resize(call_of_.size() + num_outputs, call);
  slots_[slot] = call + 1;
  if (calls_.size() * 2 > slots_.size()) Grow();
  return first;
}

void ExpressionTable::Grow() {
  slots_.assign(slots_.size() * 2, 0);
  const uint32_t mask = static_cast<uint32_t>(slots_.size()) - 1;
  for (uint32_t call = 0; call < calls_.size(); ++call) {
    uint32_t slot = hashes_[call] & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = call + 1;
  }
}

ExprId ExpressionTable::Initial(absl::string_view variable) {
  return Call(Operation(absl::StrCat("initial ", variable), variable), {});
}

ExprId ExpressionTable::Several(const Layout& layout, absl::Span<const ExprId> values) {
  OperationId operation = common_;
  if (!layout.empty()) {
    std::string key = "in one buffer";
    for (const std::vector<int64_t>& dims : layout) {
      absl::StrAppend(&key, " ", absl::StrJoin(dims, "x"));
    }
    operation = Operation(key, "buffer");
    layouts_.emplace(operation, layout);
  }
  return Call(operation, values);
}

ExprId ExpressionTable::Select(ExprId condition, ExprId yes, ExprId no) {
  bool holds = true;
  condition = WithoutNegations(condition, &holds);
  if (!holds) std::swap(yes, no);
  const ExprId select = Call(select_, {condition, yes, no});
  const auto taken = taken_as_.find(select);
  return taken == taken_as_.end() ? select : taken->second;
}

ExprId ExpressionTable::WithoutNegations(ExprId condition, bool* holds) const {
  for (auto found = negated_.find(condition); found != negated_.end();
       found = negated_.find(condition)) {
    condition = found->second;
    *holds = !*holds;
  }
  return condition;
}

ExprId ExpressionTable::Given(ExprId condition, bool holds, ExprId expr) const {
  condition = WithoutNegations(condition, &holds);
  while (IsSelect(expr) && Operands(expr)[0] == condition) expr = Operands(expr)[holds ? 1 : 2];
  return expr;
}

ExprId ExpressionTable::Scaled(ExprId expr, double factor) {
  if (SameFactor(factor, 1)) return expr;
  if (factor == 0) return zero_;
  std::vector<Term> terms = {{expr, factor}};
  double common = 1;
  const ExprId sum = Sum(&terms, &common);
  common = Representative(common);
  if (common == 1) return sum;
  const OperationId operation =
      OperationOfKind(OperationKind::kScaled, absl::StrFormat("scaled %.17g", common),
                      absl::StrCat(FactorText(common), " *"));
  factors_.try_emplace(operation.value(), std::vector<double>{common});
  return Call(operation, {sum});
}

double ExpressionTable::Representative(double factor) {
  const auto above = representatives_.lower_bound(factor);
  if (above != representatives_.end() && SameFactor(factor, *above)) return *above;
  if (above != representatives_.begin() && SameFactor(factor, *std::prev(above))) {
    return *std::prev(above);
  }
  representatives_.insert(factor);
  return factor;
}

ExpressionTable::Term ExpressionTable::Unscaled(ExprId expr) const {
  const CallRecord& call = calls_[CallOf(expr)];
  if (KindOf(call) != OperationKind::kScaled) return {expr, 1};
  return {OperandsOf(call)[0], FactorsOf(call.operation)[0]};
}

const std::vector<double>& ExpressionTable::FactorsOf(OperationId operation) const {
  const auto found = factors_.find(operation.value());
  return found == factors_.end() ? *kNoFactors : found->second;
}

void ExpressionTable::Expand(const Term& term, std::vector<Term>* out) const {
  const Term inner = Unscaled(term.expr);
  const double factor = term.factor * inner.factor;
  const CallRecord& call = calls_[CallOf(inner.expr)];
  const std::vector<double>& factors = FactorsOf(call.operation);
  if (KindOf(call) != OperationKind::kSum || call.num_operands > kMaxExpanded) {
    out->push_back({inner.expr, factor});
    return;
  }
  for (uint32_t i = 0; i < call.num_operands; ++i) {
    out->push_back({OperandsOf(call)[i], factor * (factors.empty() ? 1 : factors[i])});
  }
}

ExprId ExpressionTable::Sum(std::vector<Term>* terms, double* factor) {
  const auto is_number = [](const Term& term) { return std::isfinite(term.factor); };
  if (!std::all_of(terms->begin(), terms->end(), is_number)) {
    // Equal only to a sum of the same terms.
    std::string identity = "sum with factors that are no numbers";
    std::vector<ExprId> operands;
    for (const Term& term : *terms) {
      absl::StrAppend(&identity, " ", FactorText(term.factor));
      operands.push_back(term.expr);
    }
    *factor = 1;
    return Call(Operation(identity, "no_number"), operands);
  }
  std::vector<Term> all;
  for (const Term& term : *terms) Expand(term, &all);
  std::sort(all.begin(), all.end(), [](const Term& a, const Term& b) { return a.expr < b.expr; });
  std::vector<Term> merged;
  for (size_t i = 0; i < all.size();) {
    double sum = 0, size = 0;
    const ExprId expr = all[i].expr;
    for (; i < all.size() && all[i].expr == expr; ++i) {
      sum += all[i].factor;
      size = std::max(size, std::abs(all[i].factor));
    }
    if (std::abs(sum) > kCancelled * size && expr != zero_) merged.push_back({expr, sum});
  }
  if (merged.empty()) {
    *factor = 0;
    return zero_;
  }
  *factor = merged[0].factor;
  if (merged.size() == 1) return merged[0].expr;
  std::vector<ExprId> operands;
  std::vector<double> factors;
  bool all_one = true;
  for (const Term& term : merged) {
    operands.push_back(term.expr);
    factors.push_back(Representative(term.factor / *factor));
    all_one = all_one && factors.back() == 1;
  }
  if (all_one) return Call(sum_, operands);
  std::string identity = "sum of";
  for (double f : factors) absl::StrAppendFormat(&identity, " %.17g", f);
  const OperationId operation = OperationOfKind(OperationKind::kSum, identity, "sum");
  factors_.emplace(operation.value(), std::move(factors));
  return Call(operation, operands);
}

ExprId ExpressionTable::MeanOverGroups(ExprId expr, int size) {
  const std::string name = absl::StrCat("mean_over_groups_of_", size);
  const OperationId operation = Operation(name, name);
  group_means_.insert(operation);
  return Call(operation, {expr});
}

ExprId ExpressionTable::WithoutMeans(ExprId expr, double* factor) {
  std::vector<Term> terms;
  Expand({expr, 1}, &terms);
  for (Term& term : terms) {
    if (IsMeanOverRanks(term.expr)) term.expr = Operands(term.expr)[0];
  }
  return Sum(&terms, factor);
}

ExprId ExpressionTable::WithoutMeansOrBranches(ExprId expr, double* factor) {
  std::vector<Term> terms;
  Expand({expr, 1}, &terms);
  for (Term& term : terms) {
    if (IsMeanOverRanks(term.expr)) term.expr = Operands(term.expr)[0];
    if (!IsSelect(term.expr)) continue;
    const ExprId yes = Operands(term.expr)[1], no = Operands(term.expr)[2];
    double of_yes = 1, of_no = 1;
    const ExprId stripped = WithoutMeansOrBranches(yes, &of_yes);
    if (stripped != WithoutMeansOrBranches(no, &of_no) || !SameFactor(of_yes, of_no)) continue;
    term = {stripped, term.factor * of_yes};
  }
  return Sum(&terms, factor);
}

absl::Span<const ExprId> ExpressionTable::Operands(ExprId expr) const {
  return OperandsOf(calls_[CallOf(expr)]);
}

std::string ExpressionTable::ToString(ExprId expr, absl::string_view details, int depth) const {
  const CallRecord& call = calls_[CallOf(expr)];
  std::string text = absl::StrCat(LabelOf(call), details);
  const uint32_t output = expr.value() - call.first_output.value();
  if (output > 0) absl::StrAppend(&text, "#", output);
  if (call.num_operands == 0) return text;
  if (depth == 0) return absl::StrCat(text, "(...)");
  absl::StrAppend(&text, "(");
  constexpr uint32_t kMaxShown = 6;
  // The label of a multiple has its factor.
  const bool is_sum = KindOf(call) == OperationKind::kSum;
  const std::vector<double>& factors = is_sum ? FactorsOf(call.operation) : *kNoFactors;
  for (uint32_t i = 0; i < call.num_operands; ++i) {
    if (i > 0) absl::StrAppend(&text, ", ");
    if (i == kMaxShown) {
      absl::StrAppend(&text, "... ", call.num_operands - i, " more");
      break;
    }
    if (!factors.empty() && factors[i] != 1) absl::StrAppend(&text, FactorText(factors[i]), " * ");
    absl::StrAppend(&text, ToString(OperandsOf(call)[i], "", depth - 1));
  }
  return absl::StrCat(text, ")");
}

bool ExpressionTable::IsOpaque(ExprId expr) const {
  const auto is_opaque = [&](ExprId part) {
    const CallRecord& call = calls_[CallOf(part)];
    return operations_[call.operation.value()].is_opaque ||
           (KindOf(call) == OperationKind::kSum && call.num_operands > kMaxExpanded);
  };
  const absl::Span<const ExprId> operands = Operands(expr);
  return is_opaque(expr) || (KindOf(expr) == OperationKind::kSum &&
                             std::any_of(operands.begin(), operands.end(), is_opaque));
}

ExpressionTable::Difference ExpressionTable::FindDifference(ExprId a, ExprId b) const {
  // Descends to the first operand that differs.
  while (true) {
    const CallRecord& call_a = calls_[CallOf(a)];
    const CallRecord& call_b = calls_[CallOf(b)];
    const bool same_output =
        a.value() - call_a.first_output.value() == b.value() - call_b.first_output.value();
    if (call_a.operation != call_b.operation || !same_output ||
        call_a.num_operands != call_b.num_operands) {
      break;
    }
    const auto operands_a = OperandsOf(call_a);
    const auto operands_b = OperandsOf(call_b);
    size_t num_different = 0, first = 0;
    for (size_t i = 0; i < operands_a.size(); ++i) {
      if (operands_a[i] == operands_b[i]) continue;
      if (num_different++ == 0) first = i;
    }
    if (num_different == 0) break;
    // The order of a sum's operands has no meaning.
    if (num_different > 1 && KindOf(call_a) == OperationKind::kSum) break;
    a = operands_a[first];
    b = operands_b[first];
  }
  const CallRecord& call_a = calls_[CallOf(a)];
  const CallRecord& call_b = calls_[CallOf(b)];
  Difference details;
  if (call_a.operation != call_b.operation && LabelOf(call_a) == LabelOf(call_b)) {
    details = FindDetails(call_a.operation, call_b.operation);
  }
  constexpr int kDepth = 3;
  Difference texts{ToString(a, details.a, kDepth), ToString(b, details.b, kDepth),
                   IsOpaque(a) || IsOpaque(b)};
  if (texts.a == texts.b) texts.b.insert(0, "another ");
  return texts;
}

ExpressionTable::Difference ExpressionTable::FindDetails(OperationId a, OperationId b) const {
  const OperationRecord& record_a = operations_[a.value()];
  const OperationRecord& record_b = operations_[b.value()];
  if (record_a.details == nullptr || record_b.details == nullptr) return {};
  const Details details_a = record_a.details(*record_a.identity);
  const Details details_b = record_b.details(*record_b.identity);
  std::set<std::string> names;
  for (const auto& [name, text] : details_a) names.insert(name);
  for (const auto& [name, text] : details_b) names.insert(name);
  std::vector<std::string> of_a, of_b;
  for (const std::string& name : names) {
    const auto in_a = details_a.find(name), in_b = details_b.find(name);
    const std::string text_a = in_a == details_a.end() ? "none" : in_a->second;
    const std::string text_b = in_b == details_b.end() ? "none" : in_b->second;
    if (text_a == text_b) continue;
    const size_t from = StartOfDifference(text_a, text_b);
    of_a.push_back(absl::StrCat(name, "=", Excerpt(text_a, from)));
    of_b.push_back(absl::StrCat(name, "=", Excerpt(text_b, from)));
  }
  if (of_a.empty()) return {};
  return {absl::StrCat("{", absl::StrJoin(of_a, ", "), "}"),
          absl::StrCat("{", absl::StrJoin(of_b, ", "), "}"), false};
}

}  // namespace weft
