#include "ops/cpu/update.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

void CopyIfElsewhere(const Tensor& from, Tensor* to) {
  if (to == &from) return;
  to->Resize(from.dtype(), from.dims());
  if (from.bytes() > 0) std::memcpy(to->raw(), from.raw(), from.bytes());
}

// The output that is the same variable as the input; nullptr: the op only reads it.
const char* OutputOf(const OpSchema& schema, absl::string_view input) {
  for (const SlotSchema& output : schema.outputs()) {
    if (output.in_place_of == input) return output.name.c_str();
  }
  return nullptr;
}

}  // namespace

UpdateFrame::State UpdateFrame::MakeState(OpKernel& op, const KernelSpec& spec, const char* slot) {
  State state;
  state.slot = slot;
  if (spec.schema->FindInput(slot) == nullptr) return state;
  state.in = op.in(slot);
  const char* const output = OutputOf(*spec.schema, slot);
  if (output != nullptr && state.in) {
    state.out = op.out(output);
    op.InPlace(state.out, state.in);
  }
  return state;
}

absl::StatusOr<UpdateFrame> UpdateFrame::Make(OpKernel& op, const KernelSpec& spec, GradKind kind,
                                              const UpdateSlots& slots) {
  UpdateFrame frame;
  frame.param_ = MakeState(op, spec, "Param");
  frame.master_ = MakeState(op, spec, "MasterParam");
  frame.grad_ = op.in("Grad");
  frame.learning_rate_ = op.in("LearningRate");
  if (spec.schema->FindInput("SkipUpdate") != nullptr) frame.skip_ = op.in("SkipUpdate");
  for (const char* slot : slots.states) frame.states_.push_back(MakeState(op, spec, slot));
  for (const char* slot : slots.scalars) frame.scalars_.push_back(MakeState(op, spec, slot));
  const int count = frame.param_.in.count();
  const auto check_count = [&](absl::string_view slot, int found) {
    if (found == count) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("input ", slot, ": expected ", count, " variables as Param, found ", found));
  };
  WEFT_RETURN_IF_ERROR(check_count("Grad", frame.grad_.count()));
  std::vector<const State*> all = {&frame.param_, &frame.master_};
  for (const State& state : frame.states_) all.push_back(&state);
  for (const State& scalar : frame.scalars_) all.push_back(&scalar);
  for (const State* state : all) {
    if (!state->in) continue;
    WEFT_RETURN_IF_ERROR(check_count(state->slot, state->in.count()));
    if (state->out) WEFT_RETURN_IF_ERROR(check_count(state->slot, state->out.count()));
  }
  const int rates = frame.learning_rate_.count();
  if (rates > 1) WEFT_RETURN_IF_ERROR(check_count("LearningRate", rates));
  frame.grads_.assign(count, OptimizerGrad(kind));
  return frame;
}

absl::StatusOr<bool> UpdateFrame::CopyToOutputs(const KernelContext& ctx) const {
  const auto copy = [&](const State& state) -> absl::Status {
    for (int i = 0; i < state.in.count(); ++i) {
      if (state.in.get(ctx, i) == nullptr || !state.in(ctx, i).is_rows()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("input ", state.slot, ": expected a dense tensor, found SelectedRows"));
    }
    for (int i = 0; i < state.out.count(); ++i) {
      if (state.out.get(ctx, i) == nullptr || state.in.get(ctx, i) == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("input ", state.slot, ": is not there, or not written"));
      }
      CopyIfElsewhere(state.in(ctx, i), &state.out(ctx, i));
    }
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(copy(param_));
  WEFT_RETURN_IF_ERROR(copy(master_));
  for (const State& state : states_) WEFT_RETURN_IF_ERROR(copy(state));
  for (const State& scalar : scalars_) WEFT_RETURN_IF_ERROR(copy(scalar));
  const Tensor* skip = skip_.get(ctx);
  if (skip == nullptr) return false;
  WEFT_RETURN_IF_ERROR(CheckDType("SkipUpdate", *skip, DType::kBool));
  WEFT_RETURN_IF_ERROR(CheckSize("SkipUpdate", *skip, 1));
  return *skip->data<bool>();
}

absl::Status UpdateFrame::Check(const KernelContext& ctx, int i, const Tensor& param) const {
  if (grad_.get(ctx, i) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("input Grad: parameter ", i, " has none"));
  }
  if (has_master()) {
    WEFT_RETURN_IF_ERROR(CheckSize("MasterParam", param, param_.in(ctx, i).size()));
  }
  for (const State& state : states_) {
    if (!state.in) continue;
    WEFT_RETURN_IF_ERROR(CheckDType(state.slot, state.in(ctx, i), param.dtype()));
    WEFT_RETURN_IF_ERROR(CheckSize(state.slot, state.in(ctx, i), param.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> UpdateFrame::LearningRate(const KernelContext& ctx, int i) const {
  // Missing in programs of versions that assumed a learning rate of 1 for adadelta.
  if (!learning_rate_) return 1.0;
  const Tensor* rate = learning_rate_.get(ctx, learning_rate_.count() == 1 ? 0 : i);
  if (rate == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("input LearningRate: parameter ", i, " has none"));
  }
  return ScalarValue("LearningRate", *rate);
}

absl::Status UpdateFrame::Round(const Tensor& from, Tensor* to) {
  return ForElementType<Float16, BFloat16, float, double>("input Param", *to, [&](auto tag) {
    using To = typename decltype(tag)::type;
    return ForFloatType("input MasterParam", from, [&](auto from_tag) {
      using From = typename decltype(from_tag)::type;
      const From* values = from.data<From>();
      if constexpr (std::is_floating_point_v<To>) {
        std::copy_n(values, from.size(), to->data<To>());
      } else {
        std::transform(values, values + from.size(), to->data<To>(),
                       [](From value) { return To(static_cast<float>(value)); });
      }
      return absl::OkStatus();
    });
  });
}

}  // namespace weft
