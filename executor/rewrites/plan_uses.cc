#include "executor/rewrites/plan_uses.h"

namespace weft {

PlanUses::PlanUses(const std::vector<int>& accessed, const Plan& plan)
    : accesses(plan),
      is_kept(accesses.is_loose),
      writes(plan.variables.size(), 0),
      writer(plan.variables.size(), -1),
      readers(plan.variables.size()),
      position(plan.ops.size(), -1) {
  for (int v : accessed) is_kept[v] = true;
  for (size_t v = 0; v < is_kept.size(); ++v) {
    if (plan.variables[v].persistable || accesses.is_entry[v]) is_kept[v] = true;
  }
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const Plan::Instruction& instruction = plan.instructions[i];
    if (instruction.kind != Plan::Instruction::Kind::kRunOp) continue;
    position[instruction.index] = static_cast<int>(i);
    const Plan::PlanOp& op = plan.ops[instruction.index];
    for (int input = 0; input < static_cast<int>(op.inputs.size()); ++input) {
      const int v = op.inputs[input];
      if (v < 0) continue;
      readers[v].push_back({instruction.index, input});
      if (accesses.in_block[i]) is_kept[v] = true;
    }
    for (int v : op.outputs) {
      if (v < 0) continue;
      ++writes[v];
      writer[v] = instruction.index;
    }
  }
}

bool PlanUses::IsPlain(const Plan& plan, size_t i) const {
  const Plan::Instruction& instruction = plan.instructions[i];
  if (instruction.kind != Plan::Instruction::Kind::kRunOp || instruction.stream != 0) return false;
  const Plan::PlanOp& op = plan.ops[instruction.index];
  return !accesses.in_block[i] && op.Is<Plan::KernelWork>() && op.reads_inputs && !op.has_rows &&
         op.kernel_spec.schema != nullptr;
}

int InputOf(const Plan::PlanOp& op, absl::string_view slot) {
  const int i = op.kernel_spec.Input(slot);
  return i < 0 ? Plan::kNoVariable : op.inputs[i];
}

int OutputOf(const Plan::PlanOp& op, absl::string_view slot) {
  const int i = op.kernel_spec.Output(slot);
  return i < 0 ? Plan::kNoVariable : op.outputs[i];
}

}  // namespace weft
