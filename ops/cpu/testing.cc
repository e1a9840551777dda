#include "ops/cpu/testing.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/make_kernel.h"

namespace weft::testing {
namespace {

// Appends the tensors of all slots to `tensors` and returns the positions of each slot's tensors.
template <typename Pointer>
absl::flat_hash_map<std::string, KernelSpec::Slot> Flatten(const SlotPointers& slots,
                                                           std::vector<Pointer>* tensors) {
  absl::flat_hash_map<std::string, KernelSpec::Slot> places;
  for (const auto& slot : slots) {
    const std::vector<Tensor*>& args = slot.second;
    KernelSpec::Slot place;
    place.first = static_cast<int>(tensors->size());
    place.count = args.size() == 1 && args[0] == nullptr ? 0 : static_cast<int>(args.size());
    places[slot.first] = place;
    tensors->insert(tensors->end(), args.begin(), args.end());
  }
  return places;
}

bool HaveRows(const SlotPointers& slots) {
  for (const auto& slot : slots) {
    for (const Tensor* tensor : slot.second) {
      if (tensor != nullptr && tensor->is_rows()) return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<OpRunner> OpRunner::Make(absl::string_view type, const SlotPointers& inputs,
                                        const AttrValues& attrs, const SlotPointers& outputs,
                                        bool paddle_cpu_quirks, const KernelTable& kernels) {
  const OpSchema* schema = FindOpSchema(type);
  if (schema == nullptr) return absl::NotFoundError(absl::StrCat(type, ": no schema"));
  KernelSpec spec;
  spec.schema = schema;
  spec.attrs = OpAttrs::Make(*schema, attrs);
  spec.paddle_cpu_quirks = paddle_cpu_quirks;
  return Make(std::move(spec), inputs, outputs, kernels);
}

absl::StatusOr<OpRunner> OpRunner::MakeFromZero(absl::string_view type, const SlotPointers& inputs,
                                                const AttrValues& attrs,
                                                const SlotPointers& outputs) {
  KernelSpec spec;
  spec.schema = FindOpSchema(type);
  if (spec.schema == nullptr) return absl::NotFoundError(absl::StrCat(type, ": no schema"));
  spec.attrs = OpAttrs::Make(*spec.schema, attrs);
  spec.starts_from_zero = true;
  return Make(std::move(spec), inputs, outputs, CpuKernels());
}

absl::StatusOr<OpRunner> OpRunner::Make(const Op& op, std::map<std::string, Tensor>* variables,
                                        bool paddle_cpu_quirks) {
  const OpSchema* schema = FindOpSchema(op.type());
  if (schema == nullptr) return absl::NotFoundError(absl::StrCat(op.type(), ": no schema"));
  const auto look_up =
      [&](const std::vector<OpSignature::Slot>& slots) -> absl::StatusOr<SlotPointers> {
    SlotPointers found;
    for (const OpSignature::Slot& slot : slots) {
      found.push_back({std::string(op.program().name(slot.name)), {}});
      for (Symbol symbol : op.args(slot)) {
        const std::string name(op.program().name(symbol));
        const auto variable = variables->find(name);
        if (variable == variables->end() && name != kEmptyVarName) {
          return absl::NotFoundError(absl::StrCat("no variable ", name));
        }
        found.back().second.push_back(name == kEmptyVarName ? nullptr : &variable->second);
      }
    }
    return found;
  };
  WEFT_ASSIGN_OR_RETURN(const SlotPointers inputs, look_up(op.signature().inputs));
  WEFT_ASSIGN_OR_RETURN(const SlotPointers outputs, look_up(op.signature().outputs));
  KernelSpec spec;
  spec.schema = schema;
  spec.paddle_cpu_quirks = paddle_cpu_quirks;
  WEFT_ASSIGN_OR_RETURN(spec.attrs, OpAttrs::Decode(op, *schema));
  return Make(std::move(spec), inputs, outputs, CpuKernels());
}

absl::StatusOr<OpRunner> OpRunner::Make(KernelSpec spec, const SlotPointers& inputs,
                                        const SlotPointers& outputs, const KernelTable& kernels) {
  const std::string& type = spec.schema->type();
  const bool has_rows = HaveRows(inputs) || HaveRows(outputs);
  const KernelFactory* factory = has_rows ? kernels.FindForRows(type) : kernels.Find(type);
  if (factory == nullptr) return absl::NotFoundError(absl::StrCat(type, ": no kernel"));
  OpRunner op;
  spec.inputs = Flatten(inputs, &op.inputs_);
  spec.outputs = Flatten(outputs, &op.outputs_);
  WEFT_ASSIGN_OR_RETURN(Kernel kernel, MakeKernel(*factory, std::move(spec)));
  op.kernel_ = BoundKernel(std::move(kernel));
  return op;
}

void OpRunner::OverwriteUnreadInputs() {
  for (int i : kernel_.kernel().unread) {
    const Tensor* const input = inputs_[i];
    if (input == nullptr || input->bytes() == 0) continue;
    std::memset(const_cast<void*>(input->raw()), 0xA5, input->bytes());
  }
}

absl::Status OpRunner::Run(RandomState* random) {
  KernelContext ctx;
  ctx.inputs = inputs_;
  ctx.outputs = absl::MakeConstSpan(outputs_);
  ctx.random = random;
  ctx.fault = fault_.get();
  WEFT_RETURN_IF_ERROR(kernel_.Run(ctx));
  return ToStatus(*fault_);
}

absl::Status RunOpOn(absl::string_view type, const SlotPointers& inputs, const AttrValues& attrs,
                     const SlotPointers& outputs, RandomState* random) {
  WEFT_ASSIGN_OR_RETURN(OpRunner op, OpRunner::Make(type, inputs, attrs, outputs));
  return op.Run(random);
}

absl::StatusOr<std::map<std::string, std::vector<Tensor>>> RunOp(absl::string_view type,
                                                                 const SlotTensors& inputs,
                                                                 const AttrValues& attrs,
                                                                 const SlotCounts& outputs,
                                                                 RandomState* random) {
  SlotTensors input_tensors = inputs;
  SlotPointers input_pointers, output_pointers;
  for (auto& slot : input_tensors) {
    input_pointers.emplace_back(slot.first, std::vector<Tensor*>());
    for (Tensor& tensor : slot.second) input_pointers.back().second.push_back(&tensor);
  }
  std::map<std::string, std::vector<Tensor>> results;
  for (const auto& slot : outputs) {
    results[slot.first].resize(slot.second);
    output_pointers.emplace_back(slot.first, std::vector<Tensor*>());
    for (Tensor& tensor : results[slot.first]) output_pointers.back().second.push_back(&tensor);
  }
  WEFT_RETURN_IF_ERROR(RunOpOn(type, input_pointers, attrs, output_pointers, random));
  return results;
}

}  // namespace weft::testing
