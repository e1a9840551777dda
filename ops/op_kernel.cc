#include "ops/op_kernel.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ops/schema/infer.h"

namespace weft {
namespace {

// Ordered with the work that the kernel enqueues on `stream`.
absl::Status CopyTo(const Tensor& from, Tensor* to, void* stream) {
  if (to->memory() != from.memory()) *to = Tensor(from.memory());
  to->Resize(from.dtype(), from.dims());
  return to->memory()->Copy(from.raw(), from.bytes(), to->raw(), stream);
}

bool IsKnown(const TensorType& type) { return !absl::c_linear_search(type.dims, -1); }

}  // namespace

// The code around a step: inference if types change, preparation of outputs, copies of inputs that
// the step would overwrite, conversion of half precision.
class OpKernel::StepFrame {
 public:
  explicit StepFrame(const KernelSpec& spec) : schema_(*spec.schema), attrs_(spec.attrs) {
    for (const SlotSchema& slot : schema_.inputs()) AddSlot(slot.name, spec.inputs, &input_slots_);
    for (const SlotSchema& slot : schema_.outputs()) {
      AddSlot(slot.name, spec.outputs, &output_slots_);
    }
  }

  // What the kernel declares.
  struct Options {
    bool in_place = false;                            // any output and any input
    std::vector<std::pair<int, int>> in_place_pairs;  // output, input
    bool keeps_halves = false;
    bool one_float_type = false;
    std::vector<int> may_miss;  // first inputs of slots with arguments without a variable
  };
  Options options;

  absl::Status Run(const Kernel& step, const KernelContext& ctx) {
    WEFT_RETURN_IF_ERROR(UpdateTypes(ctx));
    if (has_halves_ && !options.keeps_halves) return RunOnHalves(step, ctx);
    WEFT_RETURN_IF_ERROR(SaveInputs(ctx));
    PrepareOutputs(ctx.outputs);
    if (!inputs_saved_) return TryStep(step, ctx);
    KernelContext inner = ctx;
    inner.inputs = inputs_;
    return TryStep(step, inner);
  }

 private:
  // Turns WrongElementType into an error that names the slot.
  absl::Status TryStep(const Kernel& step, const KernelContext& ctx) const {
    try {
      return step(ctx);
    } catch (const WrongElementType& error) {
      std::string slot = "a tensor";
      const auto look_in = [&](const char* direction, const InferContext::Slots& slots,
                               const auto& tensors) {
        for (const InferContext::Slot& candidate : slots) {
          if (absl::c_linear_search(tensors.subspan(candidate.first, candidate.count),
                                    error.tensor())) {
            slot = absl::StrCat(direction, candidate.name);
          }
        }
      };
      look_in("output ", output_slots_, ctx.outputs);
      look_in("input ", input_slots_, ctx.inputs);
      return absl::InvalidArgumentError(absl::StrCat(slot, ": ", error.what()));
    }
  }

  static void AddSlot(const std::string& name,
                      const absl::flat_hash_map<std::string, KernelSpec::Slot>& slots,
                      InferContext::Slots* to) {
    const auto it = slots.find(name);
    if (it == slots.end() || it->second.count == 0) return;
    to->push_back(
        {name, static_cast<size_t>(it->second.first), static_cast<size_t>(it->second.count)});
  }

  static bool HasType(const Tensor& tensor, const TensorType& type) {
    return tensor.dtype() == type.dtype && tensor.dims() == type.dims;
  }

  bool TypesAreAsBefore(const KernelContext& ctx) const {
    if (input_types_.size() != ctx.inputs.size()) return false;
    for (size_t i = 0; i < input_types_.size(); ++i) {
      const Tensor* input = ctx.inputs[i];
      if (input_types_[i].has_value() != (input != nullptr)) return false;
      if (input != nullptr && !HasType(*input, *input_types_[i])) return false;
    }
    return true;
  }

  absl::Status UpdateTypes(const KernelContext& ctx) {
    if (is_ready_ && TypesAreAsBefore(ctx)) return absl::OkStatus();
    is_ready_ = false;
    has_halves_ = false;
    half_ = DType::kFloat32;
    input_types_.clear();
    for (const Tensor* input : ctx.inputs) {
      input_types_.emplace_back();
      if (input == nullptr) continue;
      input_types_.back() = TensorType{input->dtype(), input->dims()};
      if (!has_halves_ && IsHalf(input->dtype())) {
        has_halves_ = true;
        half_ = input->dtype();
      }
    }
    InferContext context(schema_, attrs_, input_slots_, input_types_, output_slots_,
                         ctx.outputs.size());
    if (options.one_float_type) WEFT_RETURN_IF_ERROR(CheckOneFloatType(context));
    WEFT_RETURN_IF_ERROR(RunInference(context));
    WEFT_RETURN_IF_ERROR(CheckArguments(ctx));
    output_types_ = context.TakeOutputs();
    is_ready_ = true;
    return absl::OkStatus();
  }

  bool WorksInPlace(int output, int input) const {
    return options.in_place ||
           absl::c_linear_search(options.in_place_pairs, std::make_pair(output, input));
  }

  // Checks that every argument of an input has a variable, that a gradient slot has as many
  // arguments as its forward slot, and that an in-place output has as many variables as its input.
  absl::Status CheckArguments(const KernelContext& ctx) const {
    for (const InferContext::Slot& slot : input_slots_) {
      const int first = static_cast<int>(slot.first);
      if (absl::c_linear_search(options.may_miss, first)) continue;
      for (size_t i = 0; i < slot.count; ++i) {
        if (input_types_[slot.first + i].has_value()) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "input ", slot.name, ": expected ", slot.count, " variables, found none for ", i));
      }
    }
    for (const InferContext::Slot& slot : output_slots_) {
      const std::string& same = schema_.FindOutput(slot.name)->in_place_of;
      const bool may_miss = same.empty();
      const absl::string_view input = may_miss ? absl::StripSuffix(slot.name, "@GRAD") : same;
      if (input == slot.name) continue;
      const auto its = std::find_if(input_slots_.begin(), input_slots_.end(),
                                    [&](const auto& other) { return other.name == input; });
      if (its == input_slots_.end()) continue;
      const auto outputs = ctx.outputs.subspan(slot.first, slot.count);
      const size_t missing = std::count(outputs.begin(), outputs.end(), nullptr);
      if (slot.count == its->count && (may_miss || missing == 0)) continue;
      return absl::InvalidArgumentError(absl::StrCat("output ", slot.name, ": expected ",
                                                     its->count, " variables, as ", input,
                                                     " has, found ", slot.count - missing));
    }
    return absl::OkStatus();
  }

  absl::Status CheckOneFloatType(const InferContext& context) const {
    const auto arithmetic = [](DType type) { return IsHalf(type) ? DType::kFloat32 : type; };
    absl::optional<DType> first;
    for (const InferContext::Slot& slot : input_slots_) {
      for (size_t i = 0; i < slot.count; ++i) {
        const absl::optional<TensorType>& type = input_types_[slot.first + i];
        if (!type.has_value() || !IsFloating(type->dtype)) continue;
        if (!first.has_value()) first = arithmetic(type->dtype);
        if (*first != arithmetic(type->dtype)) {
          return context.InputError(slot.name, i,
                                    absl::StrCat(DTypeName(*first), " as the other inputs"));
        }
      }
    }
    return absl::OkStatus();
  }

  // Copies the inputs that the step would overwrite.
  absl::Status SaveInputs(const KernelContext& ctx) {
    inputs_saved_ = false;
    for (size_t o = 0; o < ctx.outputs.size(); ++o) {
      for (size_t i = 0; i < ctx.inputs.size(); ++i) {
        if (ctx.outputs[o] == nullptr || ctx.outputs[o] != ctx.inputs[i]) continue;
        const absl::optional<TensorType>& type = output_types_[o];
        if (WorksInPlace(static_cast<int>(o), static_cast<int>(i)) && type.has_value() &&
            HasType(*ctx.inputs[i], *type)) {
          continue;
        }
        if (!inputs_saved_) inputs_.assign(ctx.inputs.begin(), ctx.inputs.end());
        inputs_saved_ = true;
        copies_.resize(ctx.inputs.size());
        if (inputs_[i] == &copies_[i]) continue;  // for an earlier output
        WEFT_RETURN_IF_ERROR(CopyTo(*ctx.inputs[i], &copies_[i], ctx.stream));
        inputs_[i] = &copies_[i];
      }
    }
    return absl::OkStatus();
  }

  void PrepareOutputs(absl::Span<Tensor* const> outputs) const {
    for (size_t o = 0; o < outputs.size(); ++o) {
      const absl::optional<TensorType>& type = output_types_[o];
      if (outputs[o] == nullptr || !type.has_value() || !IsKnown(*type)) continue;
      outputs[o]->Resize(type->dtype, type->dims);
    }
  }

  absl::Status RunOnHalves(const Kernel& step, const KernelContext& ctx) {
    if (ctx.stream != nullptr) return absl::UnimplementedError("no kernel for half precision");
    copies_.resize(ctx.inputs.size());
    results_.resize(ctx.outputs.size());
    inputs_.assign(ctx.inputs.begin(), ctx.inputs.end());
    std::vector<Tensor*> outputs(ctx.outputs.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Tensor* input = inputs_[i];
      if (input == nullptr) continue;
      if (IsHalf(input->dtype())) {
        copies_[i].Resize(DType::kFloat32, input->dims());
        WEFT_RETURN_IF_ERROR(ConvertFloats("input", *input, "input", &copies_[i]));
        inputs_[i] = &copies_[i];
      } else if (absl::c_linear_search(ctx.outputs, input)) {
        WEFT_RETURN_IF_ERROR(CopyTo(*input, &copies_[i], ctx.stream));
        inputs_[i] = &copies_[i];
      }
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (ctx.outputs[o] == nullptr) continue;
      outputs[o] = &results_[o];
      // An update in place may leave some elements unchanged.
      const auto same = absl::c_find(ctx.inputs, ctx.outputs[o]);
      if (same != ctx.inputs.end()) {
        const Tensor& input = *inputs_[same - ctx.inputs.begin()];
        WEFT_RETURN_IF_ERROR(CopyTo(input, &results_[o], ctx.stream));
      }
      const absl::optional<TensorType>& type = output_types_[o];
      if (!type.has_value() || !IsKnown(*type)) continue;
      results_[o].Resize(IsHalf(type->dtype) ? DType::kFloat32 : type->dtype, type->dims);
    }
    KernelContext inner = ctx;
    inner.inputs = inputs_;
    inner.outputs = outputs;
    WEFT_RETURN_IF_ERROR(TryStep(step, inner));
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (ctx.outputs[o] == nullptr) continue;
      const Tensor& result = results_[o];
      const DType type = output_types_[o].has_value() ? output_types_[o]->dtype : half_;
      if (result.dtype() == DType::kFloat32 && IsHalf(type)) {
        ctx.outputs[o]->Resize(type, result.dims());
        WEFT_RETURN_IF_ERROR(ConvertFloats("output", result, "output", ctx.outputs[o]));
      } else {
        WEFT_RETURN_IF_ERROR(CopyTo(result, ctx.outputs[o], ctx.stream));
      }
    }
    return absl::OkStatus();
  }

  const OpSchema& schema_;
  const OpAttrs attrs_;
  InferContext::Slots input_slots_, output_slots_;

  // Of the last step.
  bool is_ready_ = false;
  InferContext::Types input_types_, output_types_;
  bool has_halves_ = false;
  DType half_ = DType::kFloat32;  // of the first such input
  bool inputs_saved_ = false;
  std::vector<const Tensor*> inputs_;
  std::vector<Tensor> copies_, results_;
};

OpKernel::OpKernel(const KernelSpec& spec)
    : spec_(spec), frame_(std::make_shared<StepFrame>(spec)) {}
OpKernel::~OpKernel() = default;

In OpKernel::in(absl::string_view slot) {
  known_inputs_.emplace_back(slot);
  const int first = spec_.Input(slot);
  if (first >= 0) return In(first, spec_.inputs.at(slot).count);
  const SlotSchema* schema = spec_.schema->FindInput(slot);
  if (status_.ok() && schema != nullptr && !schema->optional) {
    status_ = absl::InvalidArgumentError(absl::StrCat("input ", slot, ": missing"));
  }
  return In();
}

Out OpKernel::out(absl::string_view slot) {
  const int first = spec_.Output(slot);
  if (first >= 0) {
    has_output_ = true;
    return Out(first, spec_.outputs.at(slot).count);
  }
  // Programs leave out gradients that nobody needs.
  const SlotSchema* schema = spec_.schema->FindOutput(slot);
  const bool may_be_missing =
      schema == nullptr || schema->optional || absl::EndsWith(slot, "@GRAD");
  if (status_.ok() && !may_be_missing) {
    status_ = absl::InvalidArgumentError(absl::StrCat("output ", slot, ": missing"));
  }
  return Out();
}

OpKernel& OpKernel::Ignore(std::initializer_list<absl::string_view> slots) {
  for (absl::string_view slot : slots) known_inputs_.emplace_back(slot);
  return *this;
}

OpKernel& OpKernel::AllowEmptyArguments(In in) {
  if (in) frame_->options.may_miss.push_back(in.index());
  return *this;
}

OpKernel& OpKernel::InPlace() {
  frame_->options.in_place = true;
  return *this;
}

OpKernel& OpKernel::InPlace(Out out, In in) {
  for (int i = 0; i < std::min(out.count(), in.count()); ++i) {
    frame_->options.in_place_pairs.emplace_back(out.index(i), in.index(i));
  }
  return *this;
}

OpKernel& OpKernel::WithoutHalfConversion() {
  frame_->options.keeps_halves = true;
  RecordElementTypes();
  return *this;
}

void OpKernel::RequireOneFloatType() { frame_->options.one_float_type = true; }

std::string OpKernel::SlotName(In in) const {
  for (const auto& slot : spec_.inputs) {
    if (slot.second.first == in.index() && slot.second.count == in.count()) {
      return absl::StrCat("input ", slot.first);
    }
  }
  return "input";
}

absl::Status OpKernel::CheckSlots() const {
  WEFT_RETURN_IF_ERROR(status_);
  for (const SlotSchema& slot : spec_.schema->inputs()) {
    // Inference reads all required inputs.
    if (!slot.optional) {
      WEFT_RETURN_IF_ERROR(RequiredInput(spec_, slot.name).status());
    } else if (spec_.Input(slot.name) >= 0 && !absl::c_linear_search(known_inputs_, slot.name)) {
      return absl::UnimplementedError(
          absl::StrCat("input ", slot.name, ": the CPU kernel does not support it"));
    }
  }
  return absl::OkStatus();
}

void OpKernel::RecordElementTypes() const {
  if (spec_.element_types == nullptr) return;
  *spec_.element_types = element_types_;
  const auto supports = [&](DType type) { return absl::c_linear_search(element_types_, type); };
  if (supports(DType::kFloat32) && !supports(DType::kFloat16) && !frame_->options.keeps_halves) {
    spec_.element_types->push_back(DType::kFloat16);
    spec_.element_types->push_back(DType::kBFloat16);
  }
}

absl::StatusOr<Kernel> OpKernel::Finish(Kernel step) {
  WEFT_RETURN_IF_ERROR(CheckSlots());
  if (!has_output_) return Kernel([](const KernelContext&) { return absl::OkStatus(); });
  return Kernel([step = std::move(step), frame = frame_](const KernelContext& ctx) {
    return frame->Run(step, ctx);
  });
}

}  // namespace weft
