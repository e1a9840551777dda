#include "transpiler/verify/condition_equality.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ops/analysis/expressions.h"
#include "ops/analysis/rank_values.h"
#include "transpiler/verify/blocks_with_collectives.h"

namespace weft {
namespace {

// By name; invalid: nothing writes the variable.
using Values = std::map<std::string, ExprId>;

// A condition of a block with collectives.
struct Condition {
  OpId op;
  std::string name;
  ExprId expr;
  // Variables that it depends on, in this step or a later one: what a step makes of them.
  Values state;
};

// The conditions of one rank, in the order of its program.
class ConditionReader : public RankObserver {
 public:
  ConditionReader(const Program& program, ExpressionTable* table)
      : program_(program), table_(*table), blocks_(program) {}

  void Restart() override { conditions_.clear(); }
  void OnBranch(const Op& op, Symbol condition, const RankValue& value) override {
    if (!blocks_.RunBy(op)) return;
    conditions_.push_back({op.id(),
                           std::string(program_.name(condition)),
                           table_.Scaled(value.expr, value.factor),
                           {}});
  }

  bool HasConditions() const { return blocks_.AnyInner(); }

  // `values`: of the walk that this object observed.
  std::vector<Condition> Read(const RankValues& values) {
    absl::flat_hash_map<ExprId, VarId> variables;
    for (VarId var : program_.block(0).vars()) {
      if (!program_.var(var).persistable()) continue;
      variables.emplace(table_.Initial(program_.var(var).name()), var);
    }
    for (Condition& condition : conditions_) {
      condition.state = StateOf(condition.expr, variables, values);
    }
    return std::move(conditions_);
  }

 private:
  Values StateOf(ExprId condition, const absl::flat_hash_map<ExprId, VarId>& variables,
                 const RankValues& values) const {
    Values state;
    ExpressionWalk walk(table_);
    walk.Add(condition);
    while (!walk.done()) {
      const ExprId expr = walk.Next();
      const auto found = variables.find(expr);
      if (found == variables.end()) continue;
      const RankValue& end = values.AtEnd(found->second);
      state.emplace(program_.var(found->second).name(),
                    end.expr.valid() ? table_.Scaled(end.expr, end.factor) : expr);
      if (end.expr.valid()) walk.Add(end.expr);
    }
    return state;
  }

  const Program& program_;
  ExpressionTable& table_;
  const BlocksWithCollectives blocks_;
  std::vector<Condition> conditions_;
};

// What a startup program leaves in variables.
class StartValues {
 public:
  // Null: nothing is known.
  StartValues(const Program* startup, RankValuesOptions options, ExpressionTable* table)
      : startup_(startup), table_(*table) {
    if (startup == nullptr) return;
    options.is_startup = true;
    options.observer = nullptr;
    values_ = RankValues::Of(*startup, options);
  }

  ExprId Of(absl::string_view name) const {
    if (startup_ == nullptr) return ExprId();
    const VarId var = startup_->block(0).FindVar(name);
    if (!var.valid() || !values_.AtEnd(var).expr.valid()) return ExprId();
    return table_.Scaled(values_.AtEnd(var).expr, values_.AtEnd(var).factor);
  }

 private:
  const Program* const startup_;
  ExpressionTable& table_;
  RankValues values_;
};

// In what a condition of `rank` differs from that of rank 0, as the rest of a sentence; empty: in
// nothing.
std::string Difference(const Condition& expected, const Condition& found,
                       const Values& expected_start, const StartValues& start, size_t rank,
                       const ExpressionTable& table) {
  if (found.expr != expected.expr) {
    const ExpressionTable::Difference difference = table.FindDifference(expected.expr, found.expr);
    return absl::StrCat(" is computed from ", difference.b, " on rank ", rank, ", from ",
                        difference.a, " on rank 0");
  }
  for (const auto& [name, expr] : found.state) {
    const auto other = expected.state.find(name);
    const bool ends_alike = other != expected.state.end() && other->second == expr;
    const auto other_start = expected_start.find(name);
    const bool starts_alike =
        start.Of(name) == (other_start == expected_start.end() ? ExprId() : other_start->second);
    if (ends_alike && starts_alike) continue;
    return absl::StrCat(" depends on ", name, ", which ",
                        ends_alike ? "the startup program" : "a step",
                        " makes something else on rank ", rank, " than on rank 0");
  }
  return "";
}

}  // namespace

void CheckConditionsAreEqual(absl::Span<const Program* const> programs,
                             absl::Span<const Program* const> startups, absl::optional<int> nranks,
                             Findings* findings) {
  ExpressionTable table;
  std::vector<Condition> expected;  // of rank 0
  Values expected_start;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    const Program& program = *programs[rank];
    ConditionReader reader(program, &table);
    if (!reader.HasConditions()) return;
    RankValuesOptions options;
    options.nranks = nranks;
    options.table = &table;
    options.observer = &reader;
    const RankValues values = RankValues::Of(program, options);
    const std::vector<Condition> found = reader.Read(values);
    const StartValues start(startups.empty() ? nullptr : startups[rank], options, &table);
    if (rank == 0) {
      expected = found;
      for (const Condition& condition : expected) {
        for (const auto& [name, expr] : condition.state) expected_start[name] = start.Of(name);
      }
      continue;
    }
    Reporter report({static_cast<int>(rank), /*is_startup=*/false}, findings);
    // Where one rank has more conditions than another, calls differ: W501.
    for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
      const std::string difference =
          Difference(expected[i], found[i], expected_start, start, rank, table);
      if (difference.empty()) continue;
      report.Add("W506", found[i].op, found[i].name,
                 absl::StrCat(program.op(found[i].op).DebugName(), ": condition ", found[i].name,
                              difference));
    }
  }
}

}  // namespace weft
