#include "executor/rewrites/fuse_post_ops.h"

#include <cstddef>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "executor/plan/instructions.h"
#include "executor/step/step_resources.h"
#include "ops/kernel_types.h"
#include "ops/make_kernel.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

// oneDNN takes up to 32.
constexpr size_t kMaxPostOps = 4;

// The only output variable of an op; none: it has several.
int OnlyOutput(const Plan::PlanOp& op) {
  int only = Plan::kNoVariable;
  for (int v : op.outputs) {
    if (v == Plan::kNoVariable) continue;
    if (only != Plan::kNoVariable) return Plan::kNoVariable;
    only = v;
  }
  return only;
}

int InputOf(const Plan::PlanOp& op, absl::string_view slot) {
  const int i = op.kernel_spec.Input(slot);
  return i < 0 ? Plan::kNoVariable : op.inputs[i];
}

// Of fp32, or of bf16, which Fuse allows only where the kernel computes with it.
bool IsFloat(const absl::optional<TensorType>& type) {
  return type.has_value() && type->kind == TensorType::Kind::kDense &&
         (type->dtype == DType::kFloat32 || type->dtype == DType::kBFloat16);
}

// The dimension of the channels of an op's result.
int ChannelAxis(const Plan::PlanOp& op, int rank) {
  const std::string& attr = op.kernel_spec.schema->image_attr();
  const bool are_last = attr.empty() || absl::EndsWith(op.kernel_spec.attrs.String(attr), "C");
  return are_last ? rank - 1 : 1;
}

class PostOpFuser {
 public:
  PostOpFuser(const std::vector<int>& accessed, Plan* plan)
      : plan_(plan),
        accesses_(*plan),
        is_kept_(accesses_.is_loose),
        writes_(plan->variables.size(), 0),
        readers_(plan->variables.size()),
        is_removed_(plan->ops.size(), false) {
    for (int v : accessed) is_kept_[v] = true;
    for (size_t v = 0; v < is_kept_.size(); ++v) {
      if (plan->variables[v].persistable || accesses_.is_entry[v]) is_kept_[v] = true;
    }
    for (size_t position = 0; position < plan->instructions.size(); ++position) {
      const Plan::Instruction& instruction = plan->instructions[position];
      if (instruction.kind != Plan::Instruction::Kind::kRunOp) continue;
      const Plan::PlanOp& op = plan->ops[instruction.index];
      for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i) {
        const int v = op.inputs[i];
        if (v < 0) continue;
        readers_[v].push_back({instruction.index, i});
        if (accesses_.in_block[position]) is_kept_[v] = true;
      }
      for (int v : op.outputs) {
        if (v >= 0) ++writes_[v];
      }
    }
  }

  void Run() {
    for (size_t i = 0; i < plan_->instructions.size();) {
      if (!IsPlain(i)) {
        ++i;
        continue;
      }
      size_t next = NextOnStream(i);
      while (next < plan_->instructions.size() && IsPlain(next) && Fuse(OpAt(i), OpAt(next))) {
        // It runs where the other op did: what that waits for counts for both.
        std::swap(plan_->instructions[i].index, plan_->instructions[next].index);
        i = next;
        next = NextOnStream(i);
      }
      ++i;
    }
    RemoveOps(is_removed_, &plan_->instructions, &plan_->branches);
  }

 private:
  struct Reader {
    int op, input;
  };

  // The next instruction but for those that an op of the compute stream may be moved past: of other
  // streams, and waits of its own.
  size_t NextOnStream(size_t i) const {
    using Kind = Plan::Instruction::Kind;
    const auto is_passed = [](const Plan::Instruction& instruction) {
      const bool branches =
          instruction.kind == Kind::kBranch || instruction.kind == Kind::kSynchronize;
      return !branches && (instruction.stream != 0 || instruction.kind == Kind::kWait);
    };
    ++i;
    while (i < plan_->instructions.size() && is_passed(plan_->instructions[i]) &&
           !accesses_.in_block[i]) {
      ++i;
    }
    return i;
  }

  int OpAt(size_t i) const { return plan_->instructions[i].index; }

  // An op of the compute stream that only computes dense outputs from its inputs.
  bool IsPlain(size_t i) const {
    const Plan::Instruction& instruction = plan_->instructions[i];
    if (instruction.kind != Plan::Instruction::Kind::kRunOp || instruction.stream != 0) {
      return false;
    }
    const Plan::PlanOp& op = plan_->ops[instruction.index];
    return !accesses_.in_block[i] && op.Is<Plan::KernelWork>() && op.reads_inputs && !op.has_rows &&
           op.kernel_spec.schema != nullptr;
  }

  const absl::optional<TensorType>& TypeOf(int v) const { return plan_->variables[v].declared; }

  // What `last` is for `op`, whose result it reads as X. kNone: no post-op.
  PostOp AsPostOpOf(const Plan::PlanOp& op, const Plan::PlanOp& last) const {
    PostOp found{last.kernel_spec.schema->post_op(), -1};
    if (found.kind == PostOpKind::kNone || found.kind == PostOpKind::kRelu) return found;
    const int result = InputOf(last, "X"), addend = InputOf(last, "Y");
    const PostOp none{PostOpKind::kNone, -1};
    if (addend < 0 || addend == result || !IsFloat(TypeOf(addend))) return none;
    if (TypeOf(addend)->dtype != TypeOf(result)->dtype) return none;
    found.input = static_cast<int>(op.inputs.size());
    const Dims &dims = TypeOf(result)->dims, &added = TypeOf(addend)->dims;
    const int rank = static_cast<int>(dims.size());
    const int64_t axis = last.kernel_spec.attrs.Int("axis");
    const int channels = ChannelAxis(op, rank);
    const bool is_bias = rank > 1 && added.size() == 1 &&
                         (axis < 0 ? rank - 1 : axis) == channels && added[0] == dims[channels] &&
                         added[0] >= 0;
    if (is_bias) {
      found.kind = PostOpKind::kBias;
    } else if (added != dims || absl::c_linear_search(dims, -1)) {
      return none;  // it may be broadcast
    }
    return found;
  }

  // Lets op `index` carry out op `last`, which follows it. False: it cannot.
  bool Fuse(int index, int last) {
    Plan::PlanOp& op = plan_->ops[index];
    const Plan::PlanOp& following = plan_->ops[last];
    const int result = OnlyOutput(op), out = OnlyOutput(following);
    if (result < 0 || out < 0 || InputOf(following, "X") != result) return false;
    if (!IsFloat(TypeOf(result)) || TypeOf(result) != TypeOf(out)) return false;
    if (result != out && !MayLose(result, last)) return false;
    if (op.kernel_spec.post_ops.size() == kMaxPostOps) return false;
    const PostOp post_op = AsPostOpOf(op, following);
    if (post_op.kind == PostOpKind::kNone) return false;
    KernelSpec spec = op.kernel_spec;
    spec.post_ops.push_back(post_op);
    const absl::StatusOr<Kernel> kernel = MakeKernel(*op.factory(), spec);
    if (!kernel.ok() || kernel->num_post_ops != spec.post_ops.size()) return false;
    // Elsewhere, a program in bf16 keeps the results of converting and rounding every value.
    const bool takes_bfloat16 = kernel->types != nullptr && kernel->types->takes_bfloat16();
    if (TypeOf(result)->dtype == DType::kBFloat16 && !takes_bfloat16) return false;

    op.kernel_spec = std::move(spec);
    if (post_op.input >= 0) op.inputs.push_back(InputOf(following, "Y"));
    absl::c_replace(op.outputs, result, out);
    absl::StrAppend(&op.name, op.kernel_spec.post_ops.size() == 1 ? " with " : ", ",
                    following.name);
    is_removed_[last] = true;
    plan_->ops[last].work = Plan::NoWork();
    if (result != out) {
      for (const Reader& reader : readers_[result]) {
        if (reader.op == last) continue;
        plan_->ops[reader.op].inputs[reader.input] = out;
        readers_[out].push_back(reader);
      }
    }
    return true;
  }

  // Whether only op `last` reads the value of a variable.
  bool MayLose(int v, int last) const {
    if (is_kept_[v] || writes_[v] != 1) return false;
    return absl::c_all_of(
        readers_[v], [&](const Reader& reader) { return reader.op == last || IsUnread(reader); });
  }

  bool IsUnread(const Reader& reader) const {
    const Plan::PlanOp& op = plan_->ops[reader.op];
    if (!op.Is<Plan::KernelWork>() || !op.reads_inputs || op.has_rows) return false;
    const absl::StatusOr<Kernel> kernel = MakeKernel(*op.factory(), op.kernel_spec);
    return kernel.ok() && absl::c_linear_search(kernel->unread, reader.input);
  }

  Plan* const plan_;
  const PlanAccesses accesses_;               // of the plan as it was
  std::vector<bool> is_kept_;                 // by variable: must be written as the program says
  std::vector<int> writes_;                   // by variable: ops
  std::vector<std::vector<Reader>> readers_;  // by variable
  std::vector<bool> is_removed_;              // by op
};

}  // namespace

void FusePostOps(const std::vector<int>& accessed, Plan* plan) {
  PostOpFuser(accessed, plan).Run();
}

}  // namespace weft
