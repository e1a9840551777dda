// Fetched values of the rewritten program, compared with those of the original.
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
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
void EquivalenceChecker::CheckFetches(const RankValues& before, const RankValues& after) {
  if (!options_.group.empty() || !options_.setting.distributed_params.empty()) return;
  const std::map<Column, const RankFetch*> expected = LastFetches(*original_.main, before);
  const std::map<Column, const RankFetch*> found = LastFetches(*rewritten_.main, after);
  for (const auto& [column, fetch] : found) {
    const auto other = expected.find(column);
    if (other != expected.end()) {
      CompareFetched(*other->second, *fetch);
    } else if (after_ == nullptr && fetch->has_expr) {
      // The original fetches into the column among the ops that are left out here, or not at all.
      Report("W607", rewritten_.main->var(fetch->variable).name(), "it is fetched elsewhere");
    }
  }
}

void EquivalenceChecker::CompareFetched(const RankFetch& expected, const RankFetch& found) {
  RankValue value = found.value;
  // What follows from parameters that ranks average is compared where the step ends.
  if (value.averaged_across_ranks) return;
  const bool is_known = expected.has_expr && found.has_expr;
  if (is_known && value.IsOfSomeRanks()) value.expr = PlacedExpr(value, &table_);
  // Layer 7 says how the values of ranks add up to that of one device.
  const double ranks = std::pow(options_.RankFactor(), value.unscaled_sums);
  const bool has_factor = !value.IsEqualOnRanks() || value.has_unknown_scale || value.is_zero ||
                          SameFactor(value.factor, expected.value.factor * ranks);
  if (is_known && value.expr == expected.value.expr && has_factor) return;
  const absl::string_view name = original_.main->var(expected.variable).name();
  const absl::string_view other = rewritten_.main->var(found.variable).name();
  const Op op = rewritten_.main->op(found.op);
  const std::string what = absl::StrCat(op.DebugName(), " fetches ", other,
                                        name == other ? "" : absl::StrCat(" for ", name), ": ");
  if (!is_known) {
    reporter_.Add("W607", found.op, other, absl::StrCat(what, "other ops are between"));
    return;
  }
  const ExpressionTable::Difference difference =
      table_.FindDifference(table_.Scaled(expected.value.expr, expected.value.factor * ranks),
                            table_.Scaled(value.expr, value.factor));
  reporter_.Add(difference.may_be_equal ? "W607" : "W610", found.op, other,
                difference.may_be_equal
                    ? absl::StrCat(what, "cannot decide whether ", difference.b, " is ",
                                   difference.a, ", as the original has it")
                    : absl::StrCat(what, "expected ", difference.a, ", found ", difference.b));
}

}  // namespace weft
