#include "executor/step/step_types.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/server_ops.h"

namespace weft {
namespace {

using Types = BoundKernel::Types;

// What no machine has. An op that makes more fails in the step.
constexpr int64_t kMaxBytes = int64_t{1} << 46;

bool IsKnown(const absl::optional<TensorType>& type) {
  return type.has_value() && type->kind == TensorType::Kind::kDense &&
         !absl::c_linear_search(type->dims, -1) &&
         NumElements(type->dims) <= kMaxBytes / static_cast<int64_t>(SizeOf(type->dtype));
}

class TypeFinder {
 public:
  TypeFinder(const StepResources& resources, absl::Span<BoundKernel> kernels)
      : resources_(resources),
        plan_(*resources.plan),
        accesses_(*resources.accesses),
        kernels_(kernels),
        current_(plan_.variables.size()),
        is_assigned_(plan_.variables.size(), false),
        has_many_(accesses_.is_loose) {
    found_.variables.resize(plan_.variables.size());
    found_.is_static.resize(plan_.ops.size(), false);
  }

  StepTypes Find() {
    for (size_t v = 0; v < plan_.variables.size(); ++v) {
      const Tensor& tensor = *resources_.tensors[v];
      if (!accesses_.is_entry[v] || !tensor.allocated() || tensor.is_rows()) continue;
      Assign(static_cast<int>(v), TensorType{tensor.dtype(), tensor.dims()});
    }
    for (size_t i = 0; i < plan_.instructions.size(); ++i) {
      const Plan::Instruction& instruction = plan_.instructions[i];
      if (instruction.kind != Plan::Instruction::Kind::kRunOp || accesses_.in_block[i]) continue;
      VisitOp(instruction.index, instruction.stream);
    }
    // Only now is it known which variables have one type.
    for (size_t op = 0; op < plan_.ops.size(); ++op) {
      const auto has_many = [&](int v) { return v >= 0 && has_many_[v]; };
      if (absl::c_any_of(plan_.ops[op].inputs, has_many) ||
          absl::c_any_of(plan_.ops[op].outputs, has_many)) {
        found_.is_static[op] = false;
      }
    }
    for (size_t v = 0; v < has_many_.size(); ++v) {
      if (has_many_[v]) found_.variables[v].reset();
    }
    return std::move(found_);
  }

 private:
  void VisitOp(int index, int stream) {
    const Plan::PlanOp& op = plan_.ops[index];
    Types outputs(op.outputs.size());
    if (op.Is<Plan::ControlWork>()) {
      // Its variables are loose.
    } else if (op.Is<Plan::ServerWork>()) {
      FindServed(op, &outputs);
    } else if (op.ring_work() != nullptr) {
      found_.is_static[index] = InferCollective(op, &outputs);
    } else if (op.factory() != nullptr && !op.reads_inputs) {
      // It shares memory among variables, whose types do not change.
      const int buffer = op.kernel_spec.Output(kBufferSlot);
      for (size_t o = 0; o < outputs.size(); ++o) {
        if (op.outputs[o] < 0) continue;
        const absl::optional<TensorType>& declared = plan_.variables[op.outputs[o]].declared;
        if (!IsKnown(declared)) continue;
        // Paddle's fleet declares no dims of a buffer.
        if (static_cast<int>(o) == buffer && declared->dims.empty()) continue;
        outputs[o] = declared;
      }
    } else if (op.factory() != nullptr) {
      found_.is_static[index] = InferKernel(index, stream, &outputs);
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (op.outputs[o] >= 0) Assign(op.outputs[o], std::move(outputs[o]));
    }
  }

  // What a worker gets. A server learns the types of what it receives in the step.
  void FindServed(const Plan::PlanOp& op, Types* outputs) const {
    if (!op.Does(ServerOp::kPull) && !op.Does(ServerOp::kLookup)) return;
    const OpAttrs& attrs = op.kernel_spec.attrs;
    const std::vector<int64_t> shape = attrs.Ints("shape");
    const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(attrs.Int("dtype")));
    if (!dtype.has_value()) return;
    TensorType type = {*dtype, Dims(shape.begin(), shape.end())};
    if (op.Does(ServerOp::kLookup)) {
      const absl::optional<TensorType>& ids = current_[op.inputs[0]];
      if (!ids.has_value()) return;
      type.dims = ids->dims;
      if (attrs.String(kTableOpAttr) == kLookupOfColumns && !type.dims.empty()) {
        type.dims.pop_back();
      }
      type.dims.push_back(shape.back());
    }
    if (IsKnown(type)) (*outputs)[0] = type;
  }

  // Both return whether the op is static.
  bool InferCollective(const Plan::PlanOp& op, Types* outputs) const {
    const auto* const message = std::get_if<Plan::MessageWork>(&op.work);
    if (message != nullptr && message->received.has_value()) {
      (*outputs)[0] = message->received;
      return IsKnown(message->received);
    }
    const absl::optional<TensorType>& in = current_[op.inputs[0]];
    if (op.outputs.empty()) return in.has_value();  // sends a message
    if (op.has_rows || !in.has_value()) return false;
    const Plan::RingWork& work = *op.ring_work();
    const int nranks = resources_.communicators[work.ring]->nranks();
    if (SplitsInput(work.desc.kind) && (in->dims.empty() || in->dims[0] % nranks != 0)) {
      return false;  // fails in the step
    }
    (*outputs)[0] = {in->dtype, CollectiveOutputDims(work.desc.kind, in->dims, nranks)};
    return IsKnown((*outputs)[0]);
  }

  bool InferKernel(int index, int stream, Types* outputs) const {
    const Plan::PlanOp& op = plan_.ops[index];
    if (op.has_rows || kernels_[index].kernel().types == nullptr) return false;
    std::vector<const Tensor*> input_tensors;
    std::vector<Tensor*> output_tensors;
    Types inputs;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const int v = op.inputs[i];
      input_tensors.push_back(v < 0 ? nullptr : resources_.tensors[v]);
      inputs.emplace_back();
      if (v < 0) continue;
      inputs.back() = current_[v];
      // The parameter of an update that starts from zeros has no value.
      const bool is_unset = !inputs.back().has_value() && op.kernel_spec.starts_from_zero &&
                            kernels_[index].IsUnread(i);
      if (is_unset && IsKnown(plan_.variables[v].declared)) {
        inputs.back() = plan_.variables[v].declared;
      }
      if (!inputs.back().has_value()) return false;
    }
    for (int v : op.outputs) output_tensors.push_back(v < 0 ? nullptr : resources_.tensors[v]);
    const KernelContext context =
        resources_.ContextOf(index, input_tensors, output_tensors, stream);
    // An op whose inputs do not fit fails in the step.
    if (!kernels_[index].Bind(context, std::move(inputs)).ok()) return false;
    bool are_known = true;
    for (size_t o = 0; o < outputs->size(); ++o) {
      if (op.outputs[o] < 0) continue;
      if (IsKnown(kernels_[index].output_types()[o])) {
        (*outputs)[o] = kernels_[index].output_types()[o];
      } else {
        are_known = false;
      }
    }
    return are_known;
  }

  void Assign(int v, absl::optional<TensorType> type) {
    absl::optional<TensorType>& first = found_.variables[v];
    const bool is_first = !first.has_value() && !is_assigned_[v];
    is_assigned_[v] = true;
    if (is_first) first = type;
    if (!type.has_value() || first != type) has_many_[v] = true;
    current_[v] = std::move(type);
  }

  const StepResources& resources_;
  const Plan& plan_;
  const PlanAccesses& accesses_;
  const absl::Span<BoundKernel> kernels_;
  Types current_;                  // by variable, at this op
  std::vector<bool> is_assigned_;  // by variable: has been, in this step
  std::vector<bool> has_many_;     // by variable: types, or an unknown one
  StepTypes found_;
};

}  // namespace

StepTypes FindStepTypes(const StepResources& resources, absl::Span<BoundKernel> kernels) {
  return TypeFinder(resources, kernels).Find();
}

void SetType(const TensorType& type, CollectiveCall* call) {
  call->desc.dtype = type.dtype;
  call->desc.count = NumElements(type.dims);
  call->dims = type.dims;
}

Dims CollectiveOutputDims(CollectiveKind kind, const Dims& in, int nranks) {
  Dims out = in;
  if (kind == CollectiveKind::kAllGather) {
    if (out.empty()) out.push_back(1);
    out[0] *= nranks;
  } else if (kind == CollectiveKind::kReduceScatter) {
    out[0] /= nranks;
  }
  return out;
}

}  // namespace weft
