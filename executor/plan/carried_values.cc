#include "executor/plan/carried_values.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "executor/plan/control_kernels.h"

namespace weft {
namespace {

using Kind = Plan::Instruction::Kind;
using Test = Plan::Branch::Test;

// Blocks that several ops run are visited once for each.
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
  using Conditions = std::set<Condition>;
  struct Entered {
    Condition condition;
    int64_t writes;  // of its variables, before
  };

  // A collective with a condition.
  static bool MayBeSkipped(const Plan::PlanOp& op) {
    return op.Is<Plan::CollectiveWork>() && op.inputs.size() > 1 && op.inputs[1] >= 0;
  }

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
    const Conditions holding = Holding();
    for (const Conditions& conditions : {holding, Conditions{condition}}) {
      const auto found = written_if_.find(conditions);
      if (found == written_if_.end()) continue;
      for (int v : found->second) {
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
    if (are_same) {
      for (int v : written_) AddWrittenIf(holding, v);
    }
    written_ = outside;
    entered_.pop_back();
  }

  // The conditions of the blocks around this instruction.
  Conditions Holding() const {
    Conditions holding;
    for (const Entered& entered : entered_) holding.insert(entered.condition);
    return holding;
  }

  int64_t WritesOf(const Condition& condition) const {
    int64_t writes = 0;
    for (int v : condition.second) writes += num_writes_[v];
    return writes;
  }

  void VisitOp(const Plan::PlanOp& op) {
    const bool reads = (op.reads_inputs || op.Is<Plan::ControlWork>()) && !SelectsInput(op.type);
    for (int v : op.inputs) {
      if (v >= 0 && reads) Read(v);
    }
    const bool may_be_skipped = MayBeSkipped(op);
    for (int v : op.outputs) {
      if (v < 0) continue;
      ++num_writes_[v];
      Forget(v);
      if (may_be_skipped) {
        Conditions holding = Holding();
        holding.insert({Test::kTrue, {op.inputs[1]}});
        AddWrittenIf(holding, v);
      } else if (!is_written_[v]) {
        is_written_[v] = true;
        written_.push_back(v);
      }
    }
  }

  void Read(int v) {
    if (!is_written_[v]) is_carried_[v] = true;
  }

  void AddWrittenIf(const Conditions& conditions, int v) {
    const auto [it, is_new] = written_if_.try_emplace(conditions);
    it->second.insert(v);
    if (!is_new) return;
    for (const Condition& condition : conditions) {
      for (int variable : condition.second) conditions_on_[variable].push_back(conditions);
    }
  }

  // A condition is another one once an op writes one of its variables.
  void Forget(int v) {
    const auto found = conditions_on_.find(v);
    if (found == conditions_on_.end()) return;
    for (const Conditions& conditions : found->second) written_if_.erase(conditions);
    conditions_on_.erase(found);
  }

  // Others are always written where they are read.
  void NameAllOfBlocks() {
    std::vector<bool> in_block(plan_.instructions.size(), false);
    for (const Plan::Branch& branch : plan_.branches) {
      std::fill(in_block.begin() + branch.begin, in_block.begin() + branch.end, true);
    }
    for (size_t i = 0; i < in_block.size(); ++i) {
      if (plan_.instructions[i].kind != Kind::kRunOp) continue;
      const Plan::PlanOp& op = plan_.ops[plan_.instructions[i].index];
      if (!in_block[i] && !MayBeSkipped(op)) continue;
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
  std::map<Conditions, std::set<int>> written_if_;
  std::map<int, std::vector<Conditions>> conditions_on_;  // by variable: keys of written_if_
  int64_t visits_left_;
};

}  // namespace

std::vector<int> FindCarriedValues(const Plan& plan, const std::vector<int>& fed) {
  return Finder(plan, fed).Find();
}

}  // namespace weft
