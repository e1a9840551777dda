// On which conditions ranks run blocks with collectives: W503, W504, W506.
#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ops/analysis/expressions.h"
#include "transpiler/verify/across_ranks.h"
#include "transpiler/verify/blocks_with_collectives.h"
#include "transpiler/verify/reporter.h"

namespace weft {

ConditionChecker::ConditionChecker(const Program& program, ProgramRef ref)
    : program_(program), ref_(ref), block_has_collectives_(BlocksWithCollectives(program)) {}

void ConditionChecker::Restart() { found_.clear(); }

bool ConditionChecker::HasCollectives(const Op& op) const {
  const std::vector<int> blocks = op.SubBlocks();
  return std::any_of(blocks.begin(), blocks.end(),
                     [&](int block) { return block_has_collectives_[block]; });
}

void ConditionChecker::OnBranch(const Op& op, Symbol condition, const RankValue& value) {
  if (value.IsSame() || !HasCollectives(op)) return;
  found_.push_back({op.id(), condition, value.place});
}

void ConditionChecker::OnOpaqueBlock(const Op& op) {
  if (HasCollectives(op)) found_.push_back({op.id(), Symbol(), {}});
}

void ConditionChecker::Check(Findings* findings) const {
  Reporter report(AcrossRanksRules(), ref_, findings);
  for (const Found& found : found_) {
    const Op op = program_.op(found.op);
    if (!found.condition.valid()) {
      report.Add("W504", found.op, "", [&] {
        return absl::StrCat(op.DebugName(),
                            ": its block has collectives, and how often it runs is not known: it "
                            "cannot be shown that it runs equally often on all ranks");
      });
      continue;
    }
    const absl::string_view name = program_.name(found.condition);
    report.Add("W503", found.op, name, [&] {
      return absl::StrCat(op.DebugName(), ": its block has collectives, but its condition ", name,
                          " is ", ToString(found.place),
                          ": ranks on which it holds wait for the others for ever");
    });
  }
}

namespace {

// The conditions of one rank's blocks with collectives, in the order of the program, and what the
// variables that they are computed from become, all as expressions.
class ConditionReader : public RankObserver {
 public:
  struct Condition {
    OpId op;
    std::string name;
    ExprId expr;
  };

  ConditionReader(const Program& program, ExpressionTable* table)
      : program_(program), table_(*table), has_collectives_(BlocksWithCollectives(program)) {}

  void Restart() override { conditions_.clear(); }
  void OnUpdate(const Op& op, const RankValue& param, const RankValue& grad) override {}
  void OnCollective(const Op& op, Symbol variable, const RankValue& in) override {}
  void OnBranch(const Op& op, Symbol condition, const RankValue& value) override {
    const std::vector<int> blocks = op.SubBlocks();
    const bool matters = std::any_of(blocks.begin(), blocks.end(),
                                     [&](int block) { return has_collectives_[block]; });
    if (!matters) return;
    conditions_.push_back(
        {op.id(), std::string(program_.name(condition)), table_.Scaled(value.expr, value.factor)});
  }
  void OnOpaqueBlock(const Op& op) override {}

  bool HasConditions() const {
    return std::find(has_collectives_.begin() + 1, has_collectives_.end(), true) !=
           has_collectives_.end();
  }
  const std::vector<Condition>& conditions() const { return conditions_; }

  // Variables that a condition depends on, and what a step makes of them.
  std::map<std::string, ExprId> StateOf(ExprId condition, const RankValues& values) const {
    absl::flat_hash_map<ExprId, VarId> leaves;
    for (VarId var : program_.block(0).vars()) {
      if (!program_.var(var).persistable()) continue;
      leaves.emplace(table_.Initial(program_.var(var).name()), var);
    }
    std::map<std::string, ExprId> state;
    absl::flat_hash_set<ExprId> seen = {condition};
    std::vector<ExprId> todo = {condition};
    while (!todo.empty()) {
      const ExprId expr = todo.back();
      todo.pop_back();
      const auto leaf = leaves.find(expr);
      if (leaf != leaves.end()) {
        const RankValue& end = values.AtEnd(leaf->second);
        state.emplace(program_.var(leaf->second).name(),
                      end.expr.valid() ? table_.Scaled(end.expr, end.factor) : expr);
        if (end.expr.valid() && seen.insert(end.expr).second) todo.push_back(end.expr);
      }
      for (ExprId operand : table_.Operands(expr)) {
        if (seen.insert(operand).second) todo.push_back(operand);
      }
    }
    return state;
  }

 private:
  const Program& program_;
  ExpressionTable& table_;
  const std::vector<bool> has_collectives_;
  std::vector<Condition> conditions_;
};

}  // namespace

void CheckConditions(absl::Span<const Program* const> programs,
                     absl::Span<const Program* const> startups, absl::optional<int> nranks,
                     Findings* findings) {
  ExpressionTable table;
  std::vector<ConditionReader::Condition> expected;
  std::vector<std::map<std::string, ExprId>> expected_state;
  std::map<std::string, ExprId> expected_start;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    const Program& program = *programs[rank];
    ConditionReader reader(program, &table);
    if (!reader.HasConditions()) return;
    RankValuesOptions options;
    options.nranks = nranks;
    options.table = &table;
    options.observer = &reader;
    const RankValues values = RankValues::Of(program, options);
    absl::optional<RankValues> start;
    if (!startups.empty()) {
      options.is_startup = true;
      options.observer = nullptr;
      start = RankValues::Of(*startups[rank], options);
    }
    const auto at_start = [&](const std::string& name) {
      const VarId var = startups[rank]->block(0).FindVar(name);
      if (!var.valid() || !start->AtEnd(var).expr.valid()) return ExprId();
      return table.Scaled(start->AtEnd(var).expr, start->AtEnd(var).factor);
    };
    const std::vector<ConditionReader::Condition>& found = reader.conditions();
    Reporter report(AcrossRanksRules(), {static_cast<int>(rank), false}, findings);
    for (size_t i = 0; i < found.size(); ++i) {
      std::map<std::string, ExprId> state = reader.StateOf(found[i].expr, values);
      if (rank == 0) {
        if (start.has_value()) {
          for (const auto& [name, expr] : state) expected_start[name] = at_start(name);
        }
        expected_state.push_back(std::move(state));
        continue;
      }
      if (i >= expected.size()) break;  // then calls differ: W501
      const auto add = [&](absl::FunctionRef<std::string()> why) {
        report.Add("W506", found[i].op, found[i].name, [&] {
          return absl::StrCat(program.op(found[i].op).DebugName(), ": condition ", found[i].name,
                              why());
        });
      };
      if (found[i].expr != expected[i].expr) {
        add([&] {
          const ExpressionTable::Difference difference =
              table.FindDifference(expected[i].expr, found[i].expr);
          return absl::StrCat(" is computed from ", difference.b, " on rank ", rank, ", from ",
                              difference.a, " on rank 0");
        });
        continue;
      }
      for (const auto& [name, expr] : state) {
        const bool ends_alike =
            expected_state[i].count(name) > 0 && expected_state[i][name] == expr;
        const bool starts_alike = !start.has_value() || expected_start[name] == at_start(name);
        if (ends_alike && starts_alike) continue;
        add([&, &name = name] {
          return absl::StrCat(" depends on ", name, ", which ",
                              ends_alike ? "the startup program" : "a step",
                              " makes something else on rank ", rank, " than on rank 0");
        });
        break;
      }
    }
    if (rank == 0) expected = found;
  }
}

}  // namespace weft
