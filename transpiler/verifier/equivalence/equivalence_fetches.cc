// Fetched values and losses of the rewritten program, compared with those of the original.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/training/losses.h"
#include "transpiler/verifier/equivalence/equivalence.h"

namespace weft {
namespace {

// The variable that a fetch op writes, and the column there.
using Column = std::pair<std::string, int64_t>;

Column ColumnOf(const Op& op) {
  const absl::Span<const Symbol> out = op.output_args();
  return {out.empty() ? "" : std::string(op.program().name(out[0])), op.IntAttr("col").value_or(0)};
}

std::map<Column, const RankFetch*> LastFetches(const Program& program, const RankValues& values) {
  std::map<Column, const RankFetch*> last;
  for (const RankFetch& fetch : values.events().fetches)
    last[ColumnOf(program.op(fetch.op))] = &fetch;
  return last;
}

}  // namespace

// Ranks outside of a group, and those that have a slice of a parameter, compute what one device
// does not.
void EquivalenceChecker::CheckFetches() {
  if (!options_.group.empty() || !options_.setting.distributed_params.empty()) return;
  const std::map<Column, const RankFetch*> expected = LastFetches(*original_.main, before_);
  const std::map<Column, const RankFetch*> found = LastFetches(*rewritten_.main, *after_);
  for (const auto& [column, fetch] : found) {
    const auto other = expected.find(column);
    if (other != expected.end()) {
      CompareFetched(*other->second, *fetch);
    } else if (!is_whole_ && fetch->has_expr) {
      // The original fetches into the column among the ops that are left out here, or not at all.
      Report("W607", rewritten_.main->var(fetch->variable).name(), "it is fetched elsewhere");
    }
  }
  for (const auto& [column, fetch] : expected) {
    if (found.count(column) > 0) continue;
    Report("W610", original_.main->var(fetch->variable).name(),
           "the original fetches it, and no op does here");
  }
  CheckLosses();
}

void EquivalenceChecker::CompareFetched(const RankFetch& expected, const RankFetch& found) {
  const bool is_known = expected.has_expr && found.has_expr;
  if (is_known && IsHandedOut(expected.value, found.value)) return;
  const absl::string_view name = original_.main->var(expected.variable).name();
  const absl::string_view other = rewritten_.main->var(found.variable).name();
  const std::string what =
      absl::StrCat(rewritten_.main->op(found.op).DebugName(), " fetches ", other,
                   name == other ? "" : absl::StrCat(" for ", name), ": ");
  if (is_known) return ReportHandedOut(found.op, other, what, expected.value, found.value);
  // What follows from parameters that ranks average is compared where the step ends.
  if (found.value.averaged_across_ranks) return;
  reporter_.Add("W607", found.op, other, absl::StrCat(what, "other ops are between"));
}

// What users see of a step that has no fetch ops: the losses of both programs, by name. A loss that
// only the rewritten program has is one of the original under another name.
void EquivalenceChecker::CheckLosses() {
  const Block& original = original_.main->block(0);
  const Block& rewritten = rewritten_.main->block(0);
  std::set<absl::string_view> names;
  std::vector<RankValue> expected;
  for (Symbol loss : given_.of_original.Get(FindLosses)) {
    const absl::string_view name = original_.main->name(loss);
    if (!original.FindVar(name).valid() || !names.insert(name).second) continue;
    expected.push_back(WithExpr(before_.AtEnd(original.FindVar(name)), name));
  }
  std::vector<RankValue> renamed;  // or added
  for (Symbol loss : given_.of_rewritten.Get(FindLosses)) {
    const absl::string_view name = rewritten_.main->name(loss);
    const VarId var = rewritten.FindVar(name);
    if (names.insert(name).second && var.valid()) {
      renamed.push_back(WithExpr(after_->AtEnd(var), name));
    }
  }
  for (absl::string_view name : names) {
    const VarId var = original.FindVar(name), other = rewritten.FindVar(name);
    const bool is_lost =
        !other.valid() || (var.valid() && before_.IsWritten(var) && !after_->IsWritten(other));
    const auto is_among = [this](const std::vector<RankValue>& found, const RankValue& value) {
      return absl::c_any_of(found, [&](const RankValue& one) { return IsHandedOut(value, one); });
    };
    if (is_lost) {
      if (var.valid() && is_among(renamed, WithExpr(before_.AtEnd(var), name))) continue;
      Report("W610", name, "it is a loss of the original, and no op computes it here");
      continue;
    }
    const RankValue found = WithExpr(after_->AtEnd(other), name);
    const OpId writer = LastWriter(name);
    if (var.valid()) {
      const RankValue value = WithExpr(before_.AtEnd(var), name);
      if (original_.main->var(var).persistable() || IsHandedOut(value, found)) continue;
      ReportHandedOut(writer, name, absl::StrCat("loss ", name, ": "), value, found);
      continue;
    }
    const auto is_it = [&](const RankValue& value) { return IsHandedOut(value, found); };
    if (expected.empty() || absl::c_any_of(expected, is_it)) continue;
    Report("W610", name, "it is a loss, and has the value of no loss of the original");
  }
}

// Ranks may divide their losses by a constant in the forward pass. Then their gradients add up to
// the gradient of one device, and their losses to its loss.
bool EquivalenceChecker::AreNthParts() const {
  const double n = options_.RankFactor();
  return absl::c_any_of(after_->events().exchanges, [&](const RankExchange& exchange) {
    const RankValue& value = exchange.value;
    return value.is_gradient && SameFactor(value.factor * n, std::pow(n, value.unscaled_sums));
  });
}

// Whether users of both programs get the same value.
bool EquivalenceChecker::IsHandedOut(const RankValue& expected, RankValue found) {
  if (found.IsOfSomeRanks()) found.expr = PlacedExpr(found, &table_);
  const double n = options_.RankFactor();
  const double factor = expected.factor * std::pow(n, found.unscaled_sums);
  if (found.expr == expected.expr) {
    return found.has_unknown_scale || (found.is_zero && expected.is_zero) ||
           SameFactor(found.factor, factor) ||
           (!found.IsEqualOnRanks() && SameFactor(found.factor * n, factor) && AreNthParts());
  }
  // What follows from parameters that ranks average is compared where the step ends.
  if (!found.averaged_across_ranks || found.is_zero) return false;
  double of_mean = 1;
  return table_.WithoutMeans(found.expr, &of_mean) != expected.expr ||
         SameFactor(found.factor * of_mean, factor);
}

void EquivalenceChecker::ReportHandedOut(OpId op, absl::string_view name, absl::string_view what,
                                         const RankValue& expected, const RankValue& found) {
  const double ranks = std::pow(options_.RankFactor(), found.unscaled_sums);
  const ExpressionTable::Difference difference =
      table_.FindDifference(table_.Scaled(expected.expr, expected.factor * ranks),
                            table_.Scaled(PlacedExpr(found, &table_), found.factor));
  reporter_.Add(difference.may_be_equal ? "W607" : "W610", op, name,
                difference.may_be_equal
                    ? absl::StrCat(what, "cannot decide whether ", difference.b, " is ",
                                   difference.a, ", as the original has it")
                    : absl::StrCat(what, "expected ", difference.a, ", found ", difference.b));
}

}  // namespace weft
