#include "tests/properties/named_causes.h"

#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ops/analysis/training/losses.h"
#include "proto/op_role.h"

namespace weft::testing {
namespace {

// What a line names, and what follows from it.
class Causes {
 public:
  Causes(const Program& main, const BatchFlow& flow) : main_(main), flow_(flow) {}

  void AddLine(const std::string& line) {
    AddOps(line);
    AddVariables(line);
    if (absl::StrContains(line, " other op")) AddOtherOps(line);
    if (absl::StrContains(line, ", ...)")) {
      for (const BatchState& state : flow_.states()) {
        variables.emplace(main_.var(state.variable).name());
      }
    }
  }

  std::set<OpId> ops;
  std::set<std::string> variables;

 private:
  // "op 17 (sgd)", "block 1, op 0 (scale)".
  void AddOps(const std::string& line) {
    static const auto* const op_text = new std::regex(R"((?:block (\d+), )?op (\d+) \()");
    for (std::sregex_iterator it(line.begin(), line.end(), *op_text), end; it != end; ++it) {
      int block = 0, number = 0;
      if (!absl::SimpleAtoi(it->str(1), &block)) block = 0;
      if (!absl::SimpleAtoi(it->str(2), &number)) continue;
      ops.insert(main_.block(block).ops()[number]);
    }
  }

  // "loss y", "each of 2 states (a, b)", "updates w by".
  void AddVariables(const std::string& line) {
    static const auto* const single =
        new std::regex(R"(\b(loss|state|gradient|variable|updates) ([^ ,:;()]+))");
    for (std::sregex_iterator it(line.begin(), line.end(), *single), end; it != end; ++it) {
      AddVariable(it->str(2));
      if (it->str(1) == "loss") AddVariable(absl::StrCat(it->str(2), kGradSuffix));
    }
    static const auto* const list = new std::regex(R"(states \(([^()]*)\))");
    for (std::sregex_iterator it(line.begin(), line.end(), *list), end; it != end; ++it) {
      for (absl::string_view name : absl::StrSplit(it->str(1), ", ")) AddVariable(name);
    }
  }

  void AddVariable(absl::string_view name) {
    if (main_.FindSymbol(name).valid()) variables.emplace(name);
  }

  // Those that the line only counts.
  void AddOtherOps(const std::string& line) {
    if (absl::StrContains(line, "W704") || absl::StrContains(line, "W705")) {
      for (const BatchEffectAt& at : flow_.effects()) ops.insert(at.op);
    } else if (absl::StrContains(line, "W706")) {
      for (const BatchCondition& condition : flow_.conditions()) ops.insert(condition.op);
    } else {
      ops.insert(flow_.own_updates().begin(), flow_.own_updates().end());
    }
  }

  const Program& main_;
  const BatchFlow& flow_;
};

// Adds what depends on the ops or on the variables, in one run of the block. `all_depend`: whether
// the block runs does.
void AddDependents(const Program& program, int block, const std::set<OpId>& ops, bool all_depend,
                   std::set<std::string>* variables) {
  for (OpId id : program.block(block).ops()) {
    const Op op = program.op(id);
    bool depends = all_depend || ops.count(id) > 0;
    bool runs_depend = depends;
    for (const char* slot : {"Cond", "Condition"}) {
      for (Symbol name : op.Input(slot)) {
        runs_depend |= variables->count(std::string(program.name(name))) > 0;
      }
    }
    for (int inner : op.SubBlocks()) AddDependents(program, inner, ops, runs_depend, variables);
    for (Symbol name : op.input_args()) {
      depends |= variables->count(std::string(program.name(name))) > 0;
    }
    for (Symbol name : op.output_args()) {
      if (depends) variables->emplace(program.name(name));
    }
  }
}

}  // namespace

std::set<std::string> Downstream(const Program& program, const std::set<OpId>& ops,
                                 std::set<std::string> variables, int steps) {
  for (int step = 0; step < steps; ++step) AddDependents(program, 0, ops, false, &variables);
  return variables;
}

std::set<std::string> NamedAsDifferent(const Program& main, const BatchFlow& flow,
                                       const std::vector<std::string>& lines, int steps) {
  Causes causes(main, flow);
  for (const std::string& line : lines) causes.AddLine(line);
  return Downstream(main, causes.ops, causes.variables, steps);
}

}  // namespace weft::testing
