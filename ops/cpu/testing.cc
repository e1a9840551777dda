#include "ops/cpu/testing.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/make_kernel.h"

namespace weft::testing {
namespace {

// Appends the tensors of all slots to `tensors` and returns where each slot's stand.
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

absl::StatusOr<BoundOp> BoundOp::Make(absl::string_view type, const SlotPointers& inputs,
                                      const AttrValues& attrs, const SlotPointers& outputs,
                                      bool paddle_cpu_quirks) {
  KernelSpec spec;
  spec.paddle_cpu_quirks = paddle_cpu_quirks;
  spec.schema = FindOpSchema(type);
  const bool has_rows = HaveRows(inputs) || HaveRows(outputs);
  const KernelFactory* factory =
      has_rows ? CpuKernels().FindForRows(type) : CpuKernels().Find(type);
  if (spec.schema == nullptr || factory == nullptr) {
    return absl::NotFoundError(
        absl::StrCat(type, spec.schema == nullptr ? ": no schema" : ": no CPU kernel"));
  }
  spec.attrs = OpAttrs::Make(*spec.schema, attrs);
  BoundOp op;
  spec.inputs = Flatten(inputs, &op.inputs_);
  spec.outputs = Flatten(outputs, &op.outputs_);
  WEFT_ASSIGN_OR_RETURN(op.kernel_, MakeKernel(*factory, std::move(spec)));
  return op;
}

absl::Status BoundOp::Run(RandomState* random) {
  KernelContext ctx;
  ctx.inputs = inputs_;
  ctx.outputs = absl::MakeConstSpan(outputs_);
  ctx.random = random;
  return kernel_(ctx);
}

absl::Status RunOpOn(absl::string_view type, const SlotPointers& inputs, const AttrValues& attrs,
                     const SlotPointers& outputs, RandomState* random) {
  WEFT_ASSIGN_OR_RETURN(BoundOp op, BoundOp::Make(type, inputs, attrs, outputs));
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
