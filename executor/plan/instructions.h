// Changes of the instructions of a plan, which branches refer to by position.
#ifndef WEFT_EXECUTOR_PLAN_INSTRUCTIONS_H_
#define WEFT_EXECUTOR_PLAN_INSTRUCTIONS_H_

#include <vector>

#include "executor/plan/plan.h"

namespace weft {

// Instruction i is now at new_position[i], or was removed there; one position more is the end.
void MoveBranches(const std::vector<int>& new_position, std::vector<Plan::Branch>* branches);

// Removes the instructions that run the ops for which is_removed.
void RemoveOps(const std::vector<bool>& is_removed, std::vector<Plan::Instruction>* instructions,
               std::vector<Plan::Branch>* branches);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_INSTRUCTIONS_H_
