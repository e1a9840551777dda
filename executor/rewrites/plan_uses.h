// Who reads and writes the variables of a plan.
#ifndef WEFT_EXECUTOR_REWRITES_PLAN_USES_H_
#define WEFT_EXECUTOR_REWRITES_PLAN_USES_H_

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"
#include "executor/plan/plan.h"
#include "executor/step/step_resources.h"

namespace weft {

// Of the plan as it was. `accessed`: read or written between steps.
struct PlanUses {
  PlanUses(const std::vector<int>& accessed, const Plan& plan);

  // Whether instruction i of the plan, as it is now, runs an op of the compute stream, outside of
  // blocks, that only computes dense outputs from its inputs.
  bool IsPlain(const Plan& plan, size_t i) const;

  struct Reader {
    int op, input;
  };

  PlanAccesses accesses;
  std::vector<bool> is_kept;                 // by variable: must be written as the program says
  std::vector<int> writes;                   // by variable: ops
  std::vector<int> writer;                   // by variable: the last of these ops
  std::vector<std::vector<Reader>> readers;  // by variable
  std::vector<int> position;                 // by op: the instruction that runs it; -1: none
};

// The variable of a slot with one; Plan::kNoVariable: the slot has none.
int InputOf(const Plan::PlanOp& op, absl::string_view slot);
int OutputOf(const Plan::PlanOp& op, absl::string_view slot);

}  // namespace weft

#endif  // WEFT_EXECUTOR_REWRITES_PLAN_USES_H_
