#include "executor/carried_values.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace weft {
namespace {

using Kind = Plan::Instruction::Kind;
using Test = Plan::Branch::Test;

// Visits of an instruction, and of what is known of a condition.
constexpr int64_t kMaxVisitsOfEach = 64;

class Finder {
 public:
  Finder(const Plan& plan, const std::vector<int>& fed)
      : plan_(plan),
        is_written_(plan.variables.size(), false),
        is_carried_(plan.variables.size(), false),
        num_writes_(plan.variables.size(), 0),
        visits_left_(kMaxVisitsOfEach * static_cast<int64_t>(plan.instructions.size())) {
    for (int v : fed) is_written_[v] = true;
    for (size_t v = 0; v < plan.variables.size(); ++v) {
      if (plan.variables[v].persistable || plan.variables[v].is_array) is_written_[v] = true;
    }
    is_written_at_start_ = is_written_;
  }

  std::vector<int> Find() {
    Visit(0, static_cast<int>(plan_.instructions.size()));
    if (visits_left_ < 0) NameAllOfBlocks();
    std::vector<int> carried;
    for (size_t v = 0; v < is_carried_.size(); ++v) {
      if (is_carried_[v]) carried.push_back(static_cast<int>(v));
    }
    return carried;
  }

 private:
  // What a block or a collective depends on.
  using Condition = std::pair<Test, std::vector<int>>;
  struct Entered {
    Condition condition;
    int64_t writes;  // of its variables, before
  };

  void Visit(int begin, int end) {
    for (int i = begin; i < end && visits_left_-- >= 0;) {
      const Plan::Instruction& instruction = plan_.instructions[i];
      ++i;
      if (instruction.kind == Kind::kRunOp) VisitOp(plan_.ops[instruction.index]);
      if (instruction.kind != Kind::kBranch) continue;
      const Plan::Branch& branch = plan_.branches[instruction.index];
      VisitBranch(branch);
      i = branch.next;
    }
  }

  void VisitBranch(const Plan::Branch& branch) {
    for (int v : branch.conditions) Read(v);
    const Condition condition = {branch.test, branch.conditions};
    entered_.push_back({condition, WritesOf(condition)});
    const std::vector<int> outside = std::exchange(written_, {});
    std::vector<int> known;
    const std::set<Condition> holding = Holding();
    for (const auto& [conditions, variables] : written_if_) {
      --visits_left_;
      if (!std::includes(holding.begin(), holding.end(), conditions.begin(), conditions.end())) {
        continue;
      }
      for (int v : variables) {
        if (!is_written_[v]) known.push_back(v);
        is_written_[v] = true;
      }
    }
    Visit(branch.begin, branch.end);
    for (const std::vector<int>* variables : {&known, &written_}) {
      for (int v : *variables) is_written_[v] = false;
    }
    const bool are_same = std::all_of(entered_.begin(), entered_.end(), [this](const Entered& e) {
      return WritesOf(e.condition) == e.writes;
    });
    if (are_same) written_if_[holding].insert(written_.begin(), written_.end());
    written_ = outside;
    entered_.pop_back();
  }

  // The conditions of the blocks around this instruction.
  std::set<Condition> Holding() const {
    std::set<Condition> holding;
    for (const Entered& entered : entered_) holding.insert(entered.condition);
    return holding;
  }

  int64_t WritesOf(const Condition& condition) const {
    int64_t writes = 0;
    for (int v : condition.second) writes += num_writes_[v];
    return writes;
  }

  void VisitOp(const Plan::PlanOp& op) {
    // An op of the executor's own, such as a copy into a block: what it makes is as new as what it
    // takes.
    const bool moves = op.control && op.type.empty();
    const bool selects = op.type == "select_input";
    bool has_inputs = true;
    for (int v : op.inputs) {
      if (v < 0) continue;
      if (moves) {
        has_inputs = has_inputs && is_written_[v];
      } else if ((op.reads_inputs || op.control) && !selects) {
        Read(v);
      }
    }
    const bool may_be_skipped = op.ring >= 0 && op.inputs.size() > 1 && op.inputs[1] >= 0;
    for (int v : op.outputs) {
      if (v < 0) continue;
      ++num_writes_[v];
      Forget(v);
      if (may_be_skipped) {
        std::set<Condition> holding = Holding();
        holding.insert({Test::kTrue, {op.inputs[1]}});
        written_if_[holding].insert(v);
      } else if (has_inputs && !is_written_[v]) {
        is_written_[v] = true;
        written_.push_back(v);
      }
    }
  }

  void Read(int v) {
    if (!is_written_[v]) is_carried_[v] = true;
  }

  // A condition is another one once an op writes one of its variables.
  void Forget(int v) {
    const auto has = [v](const Condition& condition) {
      return std::find(condition.second.begin(), condition.second.end(), v) !=
             condition.second.end();
    };
    for (auto it = written_if_.begin(); it != written_if_.end();) {
      --visits_left_;
      const bool has_changed = std::any_of(it->first.begin(), it->first.end(), has);
      it = has_changed ? written_if_.erase(it) : std::next(it);
    }
  }

  void NameAllOfBlocks() {
    for (const Plan::PlanOp& op : plan_.ops) {
      for (int v : op.outputs) {
        if (v >= 0 && !is_written_at_start_[v]) is_carried_[v] = true;
      }
    }
  }

  const Plan& plan_;
  std::vector<bool> is_written_;  // by variable: in this step, at this instruction
  std::vector<bool> is_written_at_start_;
  std::vector<bool> is_carried_;
  std::vector<int64_t> num_writes_;  // by variable: so far
  std::vector<Entered> entered_;     // blocks around this instruction
  std::vector<int> written_;         // in the innermost of them
  // Variables that have been written in this step if all these conditions hold.
  std::map<std::set<Condition>, std::set<int>> written_if_;
  int64_t visits_left_;
};

}  // namespace

std::vector<int> FindCarriedValues(const Plan& plan, const std::vector<int>& fed) {
  return Finder(plan, fed).Find();
}

}  // namespace weft
