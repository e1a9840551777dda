// Fetched values and losses of the rewritten program, compared with those of the original.
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/training/losses.h"
#include "proto/op_role.h"
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
  const absl::string_view name = original_.main->var(expected.variable).name();
  const absl::string_view other = rewritten_.main->var(found.variable).name();
  const std::string what =
      absl::StrCat(rewritten_.main->op(found.op).DebugName(), " fetches ", other,
                   name == other ? "" : absl::StrCat(" for ", name), ": ");
  if (is_known) {
    const HandedOut is = IsHandedOut(expected.value, found.value,
                                     rewritten_.main->var(found.variable).name_symbol());
    if (is == HandedOut::kNthPart) ReportNthPart(found.op, other, what);
    if (is != HandedOut::kOther) return;
    return ReportHandedOut(found.op, other, what, expected.value, found.value);
  }
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
  std::vector<absl::string_view> renamed;  // or added
  for (Symbol loss : given_.of_rewritten.Get(FindLosses)) {
    const absl::string_view name = rewritten_.main->name(loss);
    if (names.insert(name).second && rewritten.FindVar(name).valid()) renamed.push_back(name);
  }
  const auto is_handed_out = [&](const RankValue& value, absl::string_view name) {
    const VarId var = rewritten.FindVar(name);
    return IsHandedOut(value, WithExpr(after_->AtEnd(var), name),
                       rewritten_.main->var(var).name_symbol());
  };
  for (absl::string_view name : names) {
    const VarId var = original.FindVar(name), other = rewritten.FindVar(name);
    const bool is_lost =
        !other.valid() || (var.valid() && before_.IsWritten(var) && !after_->IsWritten(other));
    if (is_lost) {
      const auto is_it = [&](absl::string_view one) {
        return is_handed_out(WithExpr(before_.AtEnd(var), name), one) != HandedOut::kOther;
      };
      if (var.valid() && absl::c_any_of(renamed, is_it)) continue;
      Report("W610", name, "it is a loss of the original, and no op computes it here");
      continue;
    }
    const OpId writer = LastWriter(name);
    const std::string what = absl::StrCat("loss ", name, ": ");
    if (var.valid()) {
      if (original_.main->var(var).persistable()) continue;
      const RankValue value = WithExpr(before_.AtEnd(var), name);
      const HandedOut is = is_handed_out(value, name);
      if (is == HandedOut::kNthPart) ReportNthPart(writer, name, what);
      if (is != HandedOut::kOther) continue;
      ReportHandedOut(writer, name, what, value, WithExpr(after_->AtEnd(other), name));
      continue;
    }
    bool is_part = false;
    const auto is_it = [&](const RankValue& value) {
      const HandedOut is = is_handed_out(value, name);
      is_part |= is == HandedOut::kNthPart;
      return is != HandedOut::kOther;
    };
    const bool is_known = expected.empty() || absl::c_any_of(expected, is_it);
    if (is_part) ReportNthPart(writer, name, what);
    if (!is_known)
      Report("W610", name, "it is a loss, and has the value of no loss of the original");
  }
}

// Ranks may divide a loss by their number in the forward pass. Then the gradients that follow from
// it add up to the gradient of one device, and the losses of ranks to its loss.
bool EquivalenceChecker::IsNthPart(Symbol loss) {
  const Program& program = *rewritten_.main;
  const std::vector<Symbol>& losses = given_.of_rewritten.Get(FindLosses);
  if (!absl::c_linear_search(losses, loss)) return false;
  const Symbol gradient = program.FindSymbol(absl::StrCat(program.name(loss), kGradSuffix));
  const bool has_gradient = gradient.valid() && program.block(0).FindVar(gradient).valid();
  // The gradient of a loss that is scaled for mixed precision has another name.
  if (!has_gradient && losses.size() > 1) return false;
  const Storage storage(program);
  absl::flat_hash_set<uint64_t> reached;  // from the gradient
  absl::flat_hash_set<OpId> ops;
  if (has_gradient) reached.insert(storage.ClassOf(0, gradient));
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    const auto is_reached = [&](Symbol name) { return reached.contains(storage.ClassOf(0, name)); };
    if (has_gradient && absl::c_none_of(op.input_args(), is_reached)) continue;
    ops.insert(id);
    for (Symbol name : op.output_args()) reached.insert(storage.ClassOf(0, name));
  }
  const double n = options_.RankFactor();
  return absl::c_any_of(after_->events().exchanges, [&](const RankExchange& exchange) {
    const RankValue& value = exchange.value;
    return ops.contains(exchange.op) && value.is_gradient &&
           SameFactor(value.factor * n, std::pow(n, value.unscaled_sums));
  });
}

EquivalenceChecker::HandedOut EquivalenceChecker::IsHandedOut(const RankValue& expected,
                                                              RankValue found, Symbol loss) {
  if (found.IsOfSomeRanks()) found.expr = PlacedExpr(found, &table_);
  const double n = options_.RankFactor();
  const double factor = expected.factor * std::pow(n, found.unscaled_sums);
  if (found.expr == expected.expr) {
    if (found.has_unknown_scale || (found.is_zero && expected.is_zero) ||
        SameFactor(found.factor, factor)) {
      return HandedOut::kEqual;
    }
    const bool may_be_part = !found.IsEqualOnRanks() && SameFactor(found.factor * n, factor);
    return may_be_part && IsNthPart(loss) ? HandedOut::kNthPart : HandedOut::kOther;
  }
  // Parameters that ranks average, or what adds to them. Whether the steps are right is judged
  // where the step ends.
  if (!found.averaged_across_ranks || found.is_zero) return HandedOut::kOther;
  double of_mean = 1;
  const bool is_same = table_.WithoutMeansOrBranches(found.expr, &of_mean) == expected.expr &&
                       SameFactor(found.factor * of_mean, factor);
  const bool is_averaged =
      is_same || (SameFactor(found.factor, factor) &&
                  IsAveraged(found, found.expr, expected.expr, rewritten_.main->name(loss)));
  return is_averaged ? HandedOut::kEqual : HandedOut::kOther;
}

void EquivalenceChecker::ReportNthPart(OpId op, absl::string_view name, absl::string_view what) {
  reporter_.Add("W612", op, name,
                absl::StrCat(what,
                             "each rank has the n-th part, for n ranks, of what the original "
                             "has; it is printed as it is"));
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
