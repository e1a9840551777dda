#include "executor/step/step_resources.h"

#include <algorithm>

namespace weft {

PlanAccesses::PlanAccesses(const Plan& plan)
    : is_entry(plan.variables.size(), false),
      is_loose(plan.variables.size(), false),
      in_block(plan.instructions.size(), false) {
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    is_entry[v] = plan.variables[v].first_reader >= 0;
  }
  for (const Plan::Branch& branch : plan.branches) {
    std::fill(in_block.begin() + branch.begin, in_block.begin() + branch.end, true);
    for (int v : branch.conditions) is_loose[v] = true;
  }
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    if (plan.instructions[i].kind != Plan::Instruction::Kind::kRunOp) continue;
    const Plan::PlanOp& op = plan.ops[plan.instructions[i].index];
    const bool is_control = op.Is<Plan::ControlWork>();
    if (op.Is<Plan::CollectiveWork>() && op.inputs.size() > 1 && op.inputs[1] >= 0 &&
        op.inputs[0] != op.outputs[0]) {
      is_entry[op.outputs[0]] = true;  // written only if the condition holds
    }
    for (int v : op.outputs) {
      if (v >= 0 && (in_block[i] || is_control)) is_loose[v] = true;
    }
    for (int v : op.inputs) {
      if (v >= 0 && is_control) is_loose[v] = true;
    }
  }
}

KernelContext StepResources::ContextOf(int op, absl::Span<const Tensor* const> inputs,
                                       absl::Span<Tensor* const> outputs, int stream) const {
  KernelContext context;
  context.inputs = inputs;
  context.outputs = outputs;
  context.random = random;
  context.place = place;
  context.fault = fault.get();
  context.op = op;
  context.stream = native_streams[stream];
  return context;
}

}  // namespace weft
