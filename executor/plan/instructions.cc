#include "executor/plan/instructions.h"

#include <cstddef>

namespace weft {

void MoveBranches(const std::vector<int>& new_position, std::vector<Plan::Branch>* branches) {
  for (Plan::Branch& branch : *branches) {
    branch.begin = new_position[branch.begin];
    branch.end = new_position[branch.end];
    branch.next = new_position[branch.next];
  }
}

void RemoveOps(const std::vector<bool>& is_removed, std::vector<Plan::Instruction>* instructions,
               std::vector<Plan::Branch>* branches) {
  std::vector<int> new_position;
  new_position.reserve(instructions->size() + 1);
  size_t kept = 0;
  for (const Plan::Instruction& instruction : *instructions) {
    new_position.push_back(static_cast<int>(kept));
    const bool runs_op = instruction.kind == Plan::Instruction::Kind::kRunOp;
    if (!runs_op || !is_removed[instruction.index]) (*instructions)[kept++] = instruction;
  }
  new_position.push_back(static_cast<int>(kept));
  instructions->resize(kept);
  MoveBranches(new_position, branches);
}

}  // namespace weft
