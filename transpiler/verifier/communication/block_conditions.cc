#include "transpiler/verifier/communication/block_conditions.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/values/expressions.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

// By name; invalid for a variable that no op writes.
using Values = std::map<std::string, ExprId>;

// A condition of a block with collectives.
struct Condition {
  OpId op;
  std::string name;
  ExprId expr;
  // The values after a step of the variables that it depends on, in this step or a later one.
  Values state;
};

// The conditions of one rank.
class ConditionReader {
 public:
  ConditionReader(const Program& program, ExpressionTable* table)
      : program_(program), table_(*table), blocks_(program) {}

  bool HasConditions() const { return blocks_.AnyInner(); }

  // In the order of the program. `values`: of the program.
  std::vector<Condition> Read(const RankValues& values) {
    absl::flat_hash_map<ExprId, VarId> variables;
    for (VarId var : program_.block(0).vars()) {
      if (!program_.var(var).persistable()) continue;
      variables.emplace(table_.Initial(program_.var(var).name()), var);
    }
    std::vector<Condition> conditions;
    for (const auto& [op, variable, value] : values.events().conditions) {
      if (!variable.valid() || !blocks_.RunBy(program_.op(op))) continue;
      const ExprId expr = table_.Scaled(value.expr, value.factor);
      conditions.push_back(
          {op, std::string(program_.name(variable)), expr, StateOf(expr, variables, values)});
    }
    return conditions;
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
};

// What the startup program leaves in a variable; invalid if unknown.
ExprId StartOf(const StartupValues& start, absl::string_view name, ExpressionTable* table) {
  const auto value = start.find(name);
  if (value == start.end() || !value->second.expr.valid()) return ExprId();
  return table->Scaled(value->second.expr, value->second.factor);
}

// How a condition of `rank` differs from that of rank 0, as the rest of a sentence; empty if it
// does not.
std::string Difference(const Condition& expected, const Condition& found,
                       const Values& expected_start, const StartupValues& start, size_t rank,
                       ExpressionTable* table) {
  if (found.expr != expected.expr) {
    const ExpressionTable::Difference difference = table->FindDifference(expected.expr, found.expr);
    return absl::StrCat(" is computed from ", difference.b, " on rank ", rank, ", from ",
                        difference.a, " on rank 0");
  }
  for (const auto& [name, expr] : found.state) {
    const auto other = expected.state.find(name);
    const bool ends_equal = other != expected.state.end() && other->second == expr;
    const auto other_start = expected_start.find(name);
    const bool starts_equal =
        StartOf(start, name, table) ==
        (other_start == expected_start.end() ? ExprId() : other_start->second);
    if (ends_equal && starts_equal) continue;
    return absl::StrCat(" depends on ", name, ", which ",
                        ends_equal ? "the startup program" : "a step",
                        " sets to another value on rank ", rank, " than on rank 0");
  }
  return "";
}

}  // namespace

BlocksWithCollectives::BlocksWithCollectives(const ProgramFacts& facts)
    : has_(facts.program().num_blocks(), false) {
  const Program& program = facts.program();
  const Communications& communications = facts.Get<Communications>();
  std::vector<std::vector<int>> holders(program.num_blocks());  // blocks of the ops that run it
  std::vector<int> todo;
  for (const Op& op : AllOps(program)) {
    if (!has_[op.block()] && communications.Of(op) != Communication::kNone) {
      has_[op.block()] = true;
      todo.push_back(op.block());
    }
    for (int sub : op.SubBlocks()) holders[sub].push_back(op.block());
  }
  // From inner to outer blocks.
  while (!todo.empty()) {
    const int b = todo.back();
    todo.pop_back();
    for (int outer : holders[b]) {
      if (has_[outer]) continue;
      has_[outer] = true;
      todo.push_back(outer);
    }
  }
}

bool BlocksWithCollectives::AnyInner() const {
  return std::find(has_.begin() + 1, has_.end(), true) != has_.end();
}

bool BlocksWithCollectives::RunBy(const Op& op) const {
  const std::vector<int> blocks = op.SubBlocks();
  return std::any_of(blocks.begin(), blocks.end(), [&](int block) { return has_[block]; });
}

void CheckConditions(const ProgramFacts& facts, const RankValues& values, ProgramRef ref,
                     Findings* findings) {
  const Program& program = facts.program();
  const BlocksWithCollectives& blocks = facts.Get<BlocksWithCollectives>();
  Reporter report(ref, findings);
  for (const RankCondition& condition : values.events().conditions) {
    const Op op = program.op(condition.op);
    if (!blocks.RunBy(op)) continue;
    if (!condition.variable.valid()) {
      report.Add("W504", op.id(), "",
                 absl::StrCat(op.DebugName(),
                              ": its block has collectives, and how often it runs is unknown: it "
                              "cannot be shown that it runs equally often on all ranks"));
      continue;
    }
    if (condition.value.IsEqualOnRanks()) continue;
    const absl::string_view name = program.name(condition.variable);
    report.Add("W503", op.id(), name,
               absl::StrCat(op.DebugName(), ": its block has collectives, but its condition ", name,
                            " is ", ToString(condition.value.placement),
                            ": ranks on which it holds wait forever for the others"));
  }
}

void CheckConditionsAreEqual(absl::Span<const Program* const> programs,
                             absl::Span<const Program* const> startups, const FeedLayouts& feeds,
                             absl::optional<int> nranks, Findings* findings) {
  ExpressionTable table;
  std::vector<Condition> expected;  // of rank 0
  Values expected_start;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    const Program& program = *programs[rank];
    ConditionReader reader(program, &table);
    if (!reader.HasConditions()) return;
    RankValuesOptions options;
    options.setting.nranks = nranks;
    options.setting.feeds = feeds;
    options.table = &table;
    const RankValues values = RankValues::Of(program, options);
    const std::vector<Condition> found = reader.Read(values);
    StartupValues start;
    if (!startups.empty()) start = ReadStartupValues(*startups[rank], options);
    if (rank == 0) {
      expected = found;
      for (const Condition& condition : expected) {
        for (const auto& [name, expr] : condition.state)
          expected_start[name] = StartOf(start, name, &table);
      }
      continue;
    }
    Reporter report({static_cast<int>(rank), /*is_startup=*/false}, findings);
    // If ranks have different numbers of conditions, their calls differ: W501.
    for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
      const std::string difference =
          Difference(expected[i], found[i], expected_start, start, rank, &table);
      if (difference.empty()) continue;
      report.Add("W506", found[i].op, found[i].name,
                 absl::StrCat(program.op(found[i].op).DebugName(), ": condition ", found[i].name,
                              difference));
    }
  }
}

}  // namespace weft
