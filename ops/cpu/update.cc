#include "ops/cpu/update.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

void CopyIfElsewhere(const Tensor& from, Tensor* to) {
  if (to == &from) return;
  to->Resize(from.dtype(), from.dims());
  if (from.bytes() > 0) std::memcpy(to->raw(), from.raw(), from.bytes());
}

// Whether a binary search for rows[i], as if rows were sorted, finds it.
bool SearchFinds(absl::Span<const int64_t> rows, size_t i) {
  size_t begin = 0, end = rows.size();
  while (begin < end) {
    const size_t middle = (begin + end - 1) / 2;
    if (rows[middle] == rows[i]) return true;
    if (rows[middle] < rows[i]) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return false;
}

// The rows, with -1, which does not count, in place of those that a search misses.
std::vector<int64_t> FoundRows(absl::Span<const int64_t> rows) {
  std::vector<int64_t> result(rows.begin(), rows.end()), sorted = result;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return result;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!SearchFinds(rows, i)) result[i] = -1;
  }
  return result;
}

// The output that is the same variable as the input; nullptr: the op only reads it.
const char* OutputOf(const OpSchema& schema, absl::string_view input) {
  for (const SlotSchema& output : schema.outputs()) {
    if (output.in_place_of == input) return output.name.c_str();
  }
  return nullptr;
}

}  // namespace

absl::Status OptimizerGrad::Read(const Tensor& grad, DType dtype, const Dims& dims) {
  const Tensor* values = &grad;
  const bool is_half = dtype == DType::kFloat32 && IsHalf(grad.dtype());
  if (is_half && kind_ == Kind::kDense) {
    dense_ = &grad;
    is_converted_ = false;
    return CheckSize("Grad", grad, NumElements(dims));
  }
  if (is_half) {
    converted_.Resize(DType::kFloat32, grad.dims());
    WEFT_RETURN_IF_ERROR(ConvertFloats("input Grad", grad, "input Grad", &converted_));
    values = &converted_;
  }
  WEFT_RETURN_IF_ERROR(CheckDType("Grad", *values, dtype));
  if (kind_ == Kind::kDense) {
    dense_ = values;
    return CheckSize("Grad", grad, NumElements(dims));
  }
  WEFT_RETURN_IF_ERROR(CheckRowsOf("Grad", grad, grad.dtype(), dims));
  if (kind_ == Kind::kSearchedRows) {
    return merger_.Merge(FoundRows(grad.rows()), *values, grad.TallDims(), &merged_);
  }
  return merger_.Merge(grad.rows(), *values, grad.TallDims(), &merged_);
}

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
  frame.starts_from_zero_ = spec.starts_from_zero;
  if (spec.starts_from_zero) {
    if (kind != GradKind::kDense || spec.Input("MasterParam") >= 0) {
      return absl::UnimplementedError(
          "no kernel that starts from zeros, with rows or a master weight");
    }
    op.in_types("Param");
    frame.param_.out = op.out("ParamOut");
  } else {
    frame.param_ = MakeState(op, spec, "Param");
  }
  frame.master_ = MakeState(op, spec, "MasterParam");
  frame.grad_ = op.in("Grad");
  // As a state, it has a rate for each element.
  const bool is_state = absl::c_linear_search(slots.states, absl::string_view("LearningRate"));
  if (!is_state) frame.learning_rate_ = op.in("LearningRate");
  if (spec.schema->FindInput("SkipUpdate") != nullptr) frame.skip_ = op.in("SkipUpdate");
  for (const char* slot : slots.states) frame.states_.push_back(MakeState(op, spec, slot));
  for (const char* slot : slots.scalars) frame.scalars_.push_back(MakeState(op, spec, slot));
  for (const char* slot : slots.powers) frame.powers_.push_back(MakeState(op, spec, slot));
  for (const char* slot : slots.constants) frame.constants_.push_back(op.in(slot));
  const int count = spec.starts_from_zero ? frame.param_.out.count() : frame.param_.in.count();
  const auto check_count = [&](absl::string_view slot, int found) {
    if (found == count) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("input ", slot, ": expected ", count, " variables as Param, found ", found));
  };
  WEFT_RETURN_IF_ERROR(check_count("Grad", frame.grad_.count()));
  std::vector<const State*> all = {&frame.param_, &frame.master_};
  for (const State& state : frame.states_) all.push_back(&state);
  for (const State& scalar : frame.scalars_) all.push_back(&scalar);
  for (const State& power : frame.powers_) all.push_back(&power);
  for (const State* state : all) {
    if (!state->in) continue;
    WEFT_RETURN_IF_ERROR(check_count(state->slot, state->in.count()));
    if (state->out) WEFT_RETURN_IF_ERROR(check_count(state->slot, state->out.count()));
  }
  const int rates = frame.learning_rate_.count();
  if (rates > 1) WEFT_RETURN_IF_ERROR(check_count("LearningRate", rates));
  if (!frame.skip_) op.MergesUpdates();
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
            absl::StrCat("input ", state.slot, ": expected a variable that the op also writes"));
      }
      CopyIfElsewhere(state.in(ctx, i), &state.out(ctx, i));
    }
    return absl::OkStatus();
  };
  if (!starts_from_zero_) WEFT_RETURN_IF_ERROR(copy(param_));
  WEFT_RETURN_IF_ERROR(copy(master_));
  for (const State& state : states_) WEFT_RETURN_IF_ERROR(copy(state));
  for (const State& scalar : scalars_) WEFT_RETURN_IF_ERROR(copy(scalar));
  for (const State& power : powers_) WEFT_RETURN_IF_ERROR(copy(power));
  const Tensor* skip = skip_.get(ctx);
  if (skip == nullptr) return false;
  return OneValue<bool>("SkipUpdate", *skip);
}

absl::Status UpdateFrame::ClearParams(const KernelContext& ctx) const {
  for (int i = 0; i < param_.out.count(); ++i) {
    Tensor& param = param_.out(ctx, i);
    if (param.bytes() > 0) std::memset(param.raw(), 0, param.bytes());
  }
  return absl::OkStatus();
}

absl::Status UpdateFrame::Check(const KernelContext& ctx, int i, const TensorType& type) {
  if (grad_.get(ctx, i) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("input Grad: parameter ", i, " has none"));
  }
  for (const State& state : states_) {
    if (!state.in) continue;
    WEFT_RETURN_IF_ERROR(CheckState(ctx, i, state, type.dtype, NumElements(type.dims)));
  }
  return grads_[i].Read(grad_(ctx, i), type.dtype, type.dims);
}

absl::Status UpdateFrame::CheckState(const KernelContext& ctx, int i, const State& state,
                                     DType dtype, int64_t size) {
  WEFT_RETURN_IF_ERROR(CheckDType(state.slot, state.in(ctx, i), dtype));
  return CheckSize(state.slot, state.in(ctx, i), size);
}

absl::StatusOr<double> UpdateFrame::LearningRate(const KernelContext& ctx, int i) const {
  // A state, or missing in programs of versions that assumed a learning rate of 1 for adadelta.
  if (!learning_rate_) return 1.0;
  const Tensor* rate = learning_rate_.get(ctx, learning_rate_.count() == 1 ? 0 : i);
  if (rate == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("input LearningRate: parameter ", i, " has none"));
  }
  return ScalarValue("LearningRate", *rate);
}

void AddUpdate(KernelTable* table, const char* type, UpdateFactory factory, GradKind rows) {
  table->Add(type, [=](const KernelSpec& spec) { return factory(spec, GradKind::kDense); });
  if (rows == GradKind::kDense) return;
  table->AddForRows(type, [=](const KernelSpec& spec) { return factory(spec, rows); });
}

}  // namespace weft
