#include "executor/rewrites/updates_from_zero.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "executor/plan/instructions.h"
#include "executor/step/step_resources.h"
#include "ops/kernel_util.h"
#include "ops/make_kernel.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_kinds.h"

namespace weft {
namespace {

class ZeroStarter {
 public:
  ZeroStarter(const std::vector<int>& accessed, Plan* plan)
      : plan_(*plan),
        accesses_(*plan),
        is_kept_(accesses_.is_loose),
        writes_(plan->variables.size()),
        reads_(plan->variables.size()),
        is_removed_(plan->ops.size(), false) {
    for (int v : accessed) is_kept_[v] = true;
    for (size_t v = 0; v < is_kept_.size(); ++v) {
      if (plan_.variables[v].persistable || accesses_.is_entry[v]) is_kept_[v] = true;
    }
    for (int i = 0; i < static_cast<int>(plan_.instructions.size()); ++i) {
      if (plan_.instructions[i].kind != Plan::Instruction::Kind::kRunOp) continue;
      for (int v : OpAt(i).inputs) {
        if (v >= 0) reads_[v].push_back(i);
      }
      for (int v : OpAt(i).outputs) {
        if (v >= 0) writes_[v].push_back(i);
      }
    }
  }

  void Run() {
    for (int i = 0; i < static_cast<int>(plan_.instructions.size()); ++i) {
      if (IsUpdate(i)) Start(i);
    }
    RemoveOps(is_removed_, &plan_.instructions, &plan_.branches);
  }

 private:
  Plan::PlanOp& OpAt(int i) { return plan_.ops[plan_.instructions[i].index]; }

  // An op with a kernel, of dense tensors, outside of blocks.
  bool IsPlain(int i) {
    if (plan_.instructions[i].kind != Plan::Instruction::Kind::kRunOp || accesses_.in_block[i]) {
      return false;
    }
    const Plan::PlanOp& op = OpAt(i);
    return op.Is<Plan::KernelWork>() && op.kernel_spec.schema != nullptr && op.reads_inputs &&
           !op.has_rows;
  }

  // The only variable of a slot, by its position; -1: there is none, or there are several.
  static int Only(const absl::flat_hash_map<std::string, KernelSpec::Slot>& slots,
                  absl::string_view slot) {
    const auto found = slots.find(slot);
    return found == slots.end() || found->second.count != 1 ? -1 : found->second.first;
  }

  bool IsUpdate(int i) {
    if (!IsPlain(i)) return false;
    const KernelSpec& spec = OpAt(i).kernel_spec;
    return spec.schema->Has(Trait::kOptimizer) && spec.Input("MasterParam") < 0 &&
           Only(spec.inputs, "Param") >= 0 && Only(spec.outputs, "ParamOut") >= 0;
  }

  // A dense tensor of known dimensions that lives within a step.
  bool IsOwn(int v) const {
    const absl::optional<TensorType>& type = plan_.variables[v].declared;
    return !is_kept_[v] && type.has_value() && type->kind == TensorType::Kind::kDense &&
           NumElements(type->dims) >= 0;
  }

  bool MakesZeros(int i) {
    if (!IsPlain(i) || !FillsConstant(OpAt(i).type) || !OpAt(i).inputs.empty()) return false;
    const OpAttrs& attrs = OpAt(i).kernel_spec.attrs;
    return attrs.Float("value") == 0 && attrs.String("str_value").empty();
  }

  void Start(int i) {
    Plan::PlanOp& op = OpAt(i);
    const int in = Only(op.kernel_spec.inputs, "Param");
    const int out = Only(op.kernel_spec.outputs, "ParamOut");
    const int v = op.inputs[in];
    if (v < 0 || op.outputs[out] != v || !IsOwn(v)) return;
    if (plan_.variables[v].declared->dtype != DType::kFloat32) return;
    const std::vector<int>&written = writes_[v], &read = reads_[v];
    const bool begins_as_zeros = written.size() == 2 && written[1] == i && MakesZeros(written[0]) &&
                                 AreOnOneStream(written[0], i) && read[0] == i &&
                                 absl::c_count(read, i) == 1;
    if (!begins_as_zeros || ReadsHalves(op, in)) return;
    KernelSpec spec = op.kernel_spec;
    spec.starts_from_zero = true;
    const absl::StatusOr<Kernel> kernel = MakeKernel(*op.factory(), spec);
    if (!kernel.ok() || !kernel->starts_from_zero) return;
    op.kernel_spec = std::move(spec);
    Remove(written[0], &op);
    if (read.size() == 2 && Rounds(read[1]) && AreOnOneStream(i, read[1])) {
      op.inputs[in] = op.outputs[out] = OpAt(read[1]).outputs[0];
      Remove(read[1], &op);
    }
  }

  // Whether the update reads half precision, or what may be that, but for its gradient and
  // parameter: it would have to widen it.
  bool ReadsHalves(const Plan::PlanOp& op, int param) const {
    const int grad = Only(op.kernel_spec.inputs, "Grad");
    for (int k = 0; k < static_cast<int>(op.inputs.size()); ++k) {
      if (k == param || k == grad || op.inputs[k] < 0) continue;
      const absl::optional<TensorType>& type = plan_.variables[op.inputs[k]].declared;
      if (!type.has_value() || IsHalf(type->dtype)) return true;
    }
    return false;
  }

  // A cast to half precision of a variable that only later ops use. So it may run earlier.
  bool Rounds(int i) {
    if (!IsPlain(i)) return false;
    const Plan::PlanOp& op = OpAt(i);
    if (AlgebraOf(op.type, op.kernel_spec.schema) != Algebra::kCast) return false;
    if (op.inputs.size() != 1 || op.outputs.size() != 1 || op.outputs[0] < 0) return false;
    const int v = op.outputs[0];
    return IsOwn(v) && IsHalf(plan_.variables[v].declared->dtype) && writes_[v].size() == 1 &&
           plan_.variables[v].declared->dims == plan_.variables[op.inputs[0]].declared->dims &&
           absl::c_all_of(reads_[v], [i](int reader) { return reader > i; });
  }

  bool AreOnOneStream(int i, int j) const {
    return plan_.instructions[i].stream == plan_.instructions[j].stream;
  }

  void Remove(int i, Plan::PlanOp* by) {
    absl::StrAppend(&by->name, absl::StrContains(by->name, " with ") ? ", " : " with ",
                    OpAt(i).name);
    is_removed_[plan_.instructions[i].index] = true;
    OpAt(i).work = Plan::NoWork();
  }

  Plan& plan_;
  const PlanAccesses accesses_;
  std::vector<bool> is_kept_;             // by variable: must be written as the program says
  std::vector<std::vector<int>> writes_;  // by variable: instructions, in order
  std::vector<std::vector<int>> reads_;   // likewise, each for every time that it reads
  std::vector<bool> is_removed_;          // by op
};

}  // namespace

void StartUpdatesFromZero(const std::vector<int>& accessed, Plan* plan) {
  ZeroStarter(accessed, plan).Run();
}

}  // namespace weft
