#include "executor/rewrites/merge_updates.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "executor/plan/instructions.h"
#include "executor/step/step_resources.h"
#include "ops/kernel_util.h"
#include "ops/make_kernel.h"

namespace weft {
namespace {

// To bind a kernel takes as long as it has pairs of an output and an input.
constexpr size_t kMaxMerged = 64;

using Slots = absl::flat_hash_map<std::string, KernelSpec::Slot>;

absl::Span<const int> VariablesOf(const Slots& slots, const std::string& name,
                                  const std::vector<int>& variables) {
  const auto it = slots.find(name);
  if (it == slots.end()) return {};
  return absl::MakeConstSpan(variables).subspan(it->second.first, it->second.count);
}

// An update that writes its variables in place.
bool IsUpdate(const Plan::PlanOp& op) {
  const KernelSpec& spec = op.kernel_spec;
  if (!op.Is<Plan::KernelWork>() || op.has_rows || spec.schema == nullptr ||
      !spec.schema->Has(Trait::kOptimizer)) {
    return false;
  }
  return absl::c_all_of(spec.schema->outputs(), [&](const SlotSchema& slot) {
    const auto written = VariablesOf(spec.outputs, slot.name, op.outputs);
    return written.empty() || written == VariablesOf(spec.inputs, slot.in_place_of, op.inputs);
  });
}

bool HaveTheSameSlots(const Slots& a, const Slots& b) {
  return a.size() == b.size() && absl::c_all_of(a, [&](const auto& slot) {
           const auto it = b.find(slot.first);
           return it != b.end() && it->second.count == slot.second.count;
         });
}

// Whether two updates differ in variables alone.
bool AreAlike(const Plan::PlanOp& a, const Plan::PlanOp& b) {
  const KernelSpec &spec = a.kernel_spec, &other = b.kernel_spec;
  return a.factory() == b.factory() && spec.attrs == other.attrs &&
         spec.paddle_cpu_quirks == other.paddle_cpu_quirks &&
         spec.starts_from_zero == other.starts_from_zero &&
         HaveTheSameSlots(spec.inputs, other.inputs) &&
         HaveTheSameSlots(spec.outputs, other.outputs);
}

// Whether the op reads or writes one of these variables.
bool Uses(const Plan::PlanOp& op, const absl::flat_hash_set<int>& variables) {
  const auto is_one = [&](int v) { return variables.contains(v); };
  return absl::c_any_of(op.inputs, is_one) || absl::c_any_of(op.outputs, is_one);
}

// A kernel converts such variables in its step: those of all merged ops at once.
bool HasHalves(const Plan& plan, const Plan::PlanOp& op) {
  return absl::c_any_of(op.inputs, [&](int v) {
    return v >= 0 && plan.variables[v].declared.has_value() &&
           IsHalf(plan.variables[v].declared->dtype);
  });
}

// The variables of each slot, of one op after the other.
void AppendSlots(const std::vector<SlotSchema>& schema, absl::Span<const Plan::PlanOp* const> ops,
                 Slots KernelSpec::*slots, std::vector<int> Plan::PlanOp::*variables,
                 Plan::PlanOp* merged) {
  for (const SlotSchema& slot : schema) {
    std::vector<int>& all = merged->*variables;
    const int first = static_cast<int>(all.size());
    for (const Plan::PlanOp* op : ops) {
      const auto of_op = VariablesOf(op->kernel_spec.*slots, slot.name, op->*variables);
      all.insert(all.end(), of_op.begin(), of_op.end());
    }
    const int count = static_cast<int>(all.size()) - first;
    if (count > 0) (merged->kernel_spec.*slots)[slot.name] = {first, count};
  }
}

Plan::PlanOp Merged(absl::Span<const Plan::PlanOp* const> ops) {
  const Plan::PlanOp& first = *ops.front();
  Plan::PlanOp merged = first;
  merged.name = absl::StrCat(first.name, " to ", ops.back()->name);
  merged.inputs.clear();
  merged.outputs.clear();
  merged.kernel_spec.inputs.clear();
  merged.kernel_spec.outputs.clear();
  const OpSchema& schema = *first.kernel_spec.schema;
  AppendSlots(schema.inputs(), ops, &KernelSpec::inputs, &Plan::PlanOp::inputs, &merged);
  AppendSlots(schema.outputs(), ops, &KernelSpec::outputs, &Plan::PlanOp::outputs, &merged);
  return merged;
}

}  // namespace

void MergeUpdates(Plan* plan) {
  const PlanAccesses accesses(*plan);
  std::vector<bool> is_removed(plan->ops.size(), false);
  const size_t size = plan->instructions.size();
  const auto update_at = [&](size_t i) -> const Plan::PlanOp* {
    const Plan::Instruction& instruction = plan->instructions[i];
    const bool runs = instruction.kind == Plan::Instruction::Kind::kRunOp &&
                      instruction.stream == 0 && !accesses.in_block[i];
    if (!runs) return nullptr;
    const Plan::PlanOp& op = plan->ops[instruction.index];
    return IsUpdate(op) && !HasHalves(*plan, op) ? &op : nullptr;
  };
  for (size_t begin = 0, end; begin < size; begin = end) {
    end = begin + 1;
    const Plan::PlanOp* const first = update_at(begin);
    if (first == nullptr) continue;
    std::vector<const Plan::PlanOp*> ops = {first};
    absl::flat_hash_set<int> written(first->outputs.begin(), first->outputs.end());
    for (; end < size && ops.size() < kMaxMerged; ++end) {
      const Plan::PlanOp* const next = update_at(end);
      if (next == nullptr || !AreAlike(*first, *next) || Uses(*next, written)) break;
      ops.push_back(next);
      written.insert(next->outputs.begin(), next->outputs.end());
    }
    if (ops.size() == 1) continue;
    Plan::PlanOp merged = Merged(ops);
    const absl::StatusOr<Kernel> kernel = MakeKernel(*merged.factory(), merged.kernel_spec);
    if (!kernel.ok() || !kernel->merges_updates) continue;
    for (size_t i = begin + 1; i < end; ++i) {
      const int index = plan->instructions[i].index;
      is_removed[index] = true;
      plan->ops[index].work = Plan::NoWork();
    }
    plan->ops[plan->instructions[begin].index] = std::move(merged);
  }
  RemoveOps(is_removed, &plan->instructions, &plan->branches);
}

}  // namespace weft
