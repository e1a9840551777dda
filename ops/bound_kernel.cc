#include "ops/bound_kernel.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/kernel_util.h"
#include "ops/threads.h"

namespace weft {
namespace {

bool IsKnown(const absl::optional<TensorType>& type) {
  return type.has_value() && !absl::c_linear_search(type->dims, -1);
}

bool HasType(const Tensor& tensor, const TensorType& type) {
  return tensor.dtype() == type.dtype && tensor.dims() == type.dims;
}

}  // namespace

absl::Status BoundKernel::Transfer::Run(void* stream) const {
  const bool rounds = kind == Kind::kRound && from->dtype() == DType::kFloat32;
  if (kind == Kind::kWiden || rounds) {
    to->Resize(rounds ? type : DType::kFloat32, from->dims());
    if (!to->memory()->IsHost()) {
      return to->memory()->ConvertHalves(from->dtype(), from->raw(), to->dtype(), to->raw(),
                                         from->size(), stream);
    }
    return ConvertFloats(rounds ? "output" : "input", *from, rounds ? "output" : "input", to);
  }
  to->Resize(from->dtype(), from->dims());
  return to->memory()->Copy(from->raw(), from->bytes(), to->raw(), stream);
}

absl::Status BoundKernel::Run(const KernelContext& ctx) {
  random_ = ctx.random;
  place_ = ctx.place;
  if (!IsBoundTo(ctx)) {
    Types types;
    types.reserve(ctx.inputs.size());
    for (const Tensor* input : ctx.inputs) {
      types.emplace_back();
      if (input != nullptr) types.back() = TensorType{input->dtype(), input->dims()};
    }
    WEFT_RETURN_IF_ERROR(Bind(ctx, std::move(types)));
  }
  // Inputs are copied before outputs change their types, because they may be the same; those of
  // blocks have their types already.
  if (block_ == 0) {
    for (const Transfer& transfer : before_) WEFT_RETURN_IF_ERROR(transfer.Run(stream_));
  } else {
    for (Temporary& temporary : temporaries_) {
      temporary.tensor.Resize(temporary.type->dtype, temporary.type->dims);
    }
    for (size_t o = 0; o < caller_outputs_.size(); ++o) {
      if (caller_outputs_[o] == nullptr) continue;
      caller_outputs_[o]->Resize(output_types_[o]->dtype, output_types_[o]->dims);
    }
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const absl::optional<TensorType>& type = step_output_types_[o];
    if (outputs_[o] != nullptr && IsKnown(type)) outputs_[o]->Resize(type->dtype, type->dims);
  }
  if (step_ == nullptr) WEFT_RETURN_IF_ERROR(Prepare());
  if (block_ != 0) return RunBound();
  WEFT_RETURN_IF_ERROR(Try(step_, StepContext()));
  for (const Transfer& transfer : after_) WEFT_RETURN_IF_ERROR(transfer.Run(stream_));
  return absl::OkStatus();
}

bool BoundKernel::IsBoundTo(const KernelContext& ctx) const {
  if (!is_bound_ || stream_ != ctx.stream || !absl::c_equal(ctx.inputs, caller_inputs_) ||
      !absl::c_equal(ctx.outputs, caller_outputs_)) {
    return false;
  }
  if (kernel_.types == nullptr) return true;
  for (size_t i = 0; i < ctx.inputs.size(); ++i) {
    if (ctx.inputs[i] != nullptr && !HasType(*ctx.inputs[i], *input_types_[i])) return false;
  }
  return true;
}

absl::Status BoundKernel::Bind(const KernelContext& ctx, Types inputs) {
  is_bound_ = false;
  step_ = nullptr;
  caller_inputs_.assign(ctx.inputs.begin(), ctx.inputs.end());
  caller_outputs_.assign(ctx.outputs.begin(), ctx.outputs.end());
  inputs_ = caller_inputs_;
  outputs_ = caller_outputs_;
  random_ = ctx.random;
  place_ = ctx.place;
  stream_ = ctx.stream;
  fault_ = ctx.fault;
  op_ = ctx.op;
  input_types_ = std::move(inputs);
  temporaries_.clear();
  parts_.clear();
  before_.clear();
  after_.clear();
  output_types_.assign(outputs_.size(), absl::nullopt);
  if (kernel_.types != nullptr) {
    WEFT_ASSIGN_OR_RETURN(output_types_, kernel_.types->Infer(input_types_, caller_outputs_));
  }
  step_output_types_ = output_types_;
  block_ = 0;
  const absl::optional<DType> half = ConvertedHalf();
  if (half.has_value()) {
    WEFT_RETURN_IF_ERROR(ConvertHalves(*half));
  } else if (kernel_.types != nullptr) {
    CopyOverwrittenInputs();
  }
  is_bound_ = true;
  return absl::OkStatus();
}

absl::optional<DType> BoundKernel::ConvertedHalf() const {
  if (kernel_.types == nullptr || kernel_.keeps_halves) return absl::nullopt;
  Types read = input_types_;
  for (int i : kernel_.unread) read[i] = absl::nullopt;
  if (kernel_.types->TakesHalves(read)) return absl::nullopt;
  for (size_t i = 0; i < input_types_.size(); ++i) {
    const absl::optional<TensorType>& type = input_types_[i];
    if (absl::c_linear_search(kernel_.half_inputs, static_cast<int>(i))) continue;
    if (type.has_value() && IsHalf(type->dtype)) return type->dtype;
  }
  return absl::nullopt;
}

bool BoundKernel::WorksInPlace(size_t output, size_t input) const {
  const std::pair<int, int> pair(static_cast<int>(output), static_cast<int>(input));
  const absl::optional<TensorType>& type = output_types_[output];
  return (kernel_.in_place || absl::c_linear_search(kernel_.in_place_pairs, pair)) &&
         type.has_value() && type->dtype == input_types_[input]->dtype &&
         type->dims == input_types_[input]->dims;
}

bool BoundKernel::IsUnread(size_t input) const {
  return absl::c_linear_search(kernel_.unread, static_cast<int>(input));
}

bool BoundKernel::CanShare(int output, int input) const {
  return temporaries_.empty() && (IsUnread(input) || WorksInPlace(output, input));
}

Tensor* BoundKernel::AddTemporary(Memory* memory, absl::optional<TensorType> type) {
  temporaries_.push_back({Tensor(memory), std::move(type)});
  return &temporaries_.back().tensor;
}

void BoundKernel::CopyOverwrittenInputs() {
  for (size_t o = 0; o < outputs_.size(); ++o) {
    if (outputs_[o] == nullptr) continue;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      // Not again for another output.
      if (inputs_[i] != outputs_[o] || WorksInPlace(o, i)) continue;
      if (IsUnread(i) && output_types_[o] == input_types_[i]) continue;
      Tensor* const copy = AddTemporary(outputs_[o]->memory(), input_types_[i]);
      before_.push_back({Transfer::Kind::kCopy, inputs_[i], copy, DType::kFloat32});
      inputs_[i] = copy;
    }
  }
}

absl::Status BoundKernel::ConvertHalves(DType half) {
  using Kind = Transfer::Kind;
  block_ = BlockSize();
  for (const absl::optional<TensorType>& type : input_types_) {
    if (type.has_value()) size_ = NumElements(type->dims);
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i] == nullptr) continue;
    const TensorType& type = *input_types_[i];
    const bool widens = IsHalf(type.dtype);
    if ((!widens || IsUnread(i)) && !absl::c_linear_search(caller_outputs_, inputs_[i])) continue;
    const DType dtype = widens ? DType::kFloat32 : type.dtype;
    Tensor* const copy =
        AddTemporary(inputs_[i]->memory(), TensorType{dtype, DimsOfTemporary(type.dims)});
    before_.push_back({widens ? Kind::kWiden : Kind::kCopy, inputs_[i], copy, DType::kFloat32});
    inputs_[i] = copy;
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    if (outputs_[o] == nullptr) continue;
    const absl::optional<TensorType>& type = output_types_[o];
    // Half precision is the result where inference does not know the type.
    const DType dtype = type.has_value() ? type->dtype : half;
    absl::optional<TensorType> result_type;
    if (IsKnown(type)) {
      result_type =
          TensorType{IsHalf(dtype) ? DType::kFloat32 : dtype, DimsOfTemporary(type->dims)};
    }
    step_output_types_[o] = result_type;
    Tensor* const result = AddTemporary(outputs_[o]->memory(), std::move(result_type));
    // An update in place may leave some elements unchanged.
    const auto same = absl::c_find(caller_inputs_, outputs_[o]);
    if (same != caller_inputs_.end()) {
      before_.push_back(
          {Kind::kCopy, inputs_[same - caller_inputs_.begin()], result, DType::kFloat32});
    }
    after_.push_back({IsHalf(dtype) ? Kind::kRound : Kind::kCopy, result, outputs_[o], dtype});
    outputs_[o] = result;
  }
  return absl::OkStatus();
}

KernelContext BoundKernel::StepContext() const {
  KernelContext ctx;
  ctx.inputs = inputs_;
  ctx.outputs = outputs_;
  ctx.random = random_;
  ctx.place = place_;
  ctx.fault = fault_;
  ctx.op = op_;
  ctx.stream = stream_;
  return ctx;
}

absl::Status BoundKernel::Prepare() {
  // For RunPart, which then allocates nothing.
  parts_.resize(kernel_.is_pointwise ? std::max(1, KernelThreads()) : 0);
  for (size_t lane = 0; lane < parts_.size() && !has_temporaries(); ++lane) {
    PartContext(0, 0, static_cast<int>(lane));
  }
  return Try(
      [this](const KernelContext& ctx) -> absl::Status {
        WEFT_ASSIGN_OR_RETURN(step_, kernel_.prepare(ctx));
        return absl::OkStatus();
      },
      block_ == 0 ? StepContext() : PartContext(0, block_, /*lane=*/0));
}

absl::Status BoundKernel::RunBound() {
  for (int64_t begin = 0; block_ != 0 && begin < size_; begin += block_) {
    WEFT_RETURN_IF_ERROR(RunPart(begin, std::min(block_, size_ - begin)));
  }
  if (block_ != 0) return absl::OkStatus();
  for (const Transfer& transfer : before_) WEFT_RETURN_IF_ERROR(transfer.Run(stream_));
  WEFT_RETURN_IF_ERROR(Try(step_, StepContext()));
  for (const Transfer& transfer : after_) WEFT_RETURN_IF_ERROR(transfer.Run(stream_));
  return absl::OkStatus();
}

int64_t BoundKernel::BlockSize() const {
  // Loops over a block are too short for several threads.
  constexpr int64_t kBlock = 8192;
  static_assert(kBlock % kPointwiseStep == 0 && kBlock < kMinParallelSize);
  if (!kernel_.is_pointwise || KernelThreads() > 1) return 0;
  const Dims* dims = nullptr;
  for (const Types* types : {&input_types_, &output_types_}) {
    for (const absl::optional<TensorType>& type : *types) {
      if (!type.has_value()) continue;
      if (dims != nullptr && type->dims != *dims) return 0;
      dims = &type->dims;
    }
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    if (outputs_[o] != nullptr && !IsKnown(output_types_[o])) return 0;
  }
  if (dims == nullptr || NumElements(*dims) <= kBlock) return 0;
  return kBlock;
}

void BoundKernel::PointTo(const Tensor& whole, int64_t begin, int64_t count, Tensor* part) const {
  const bool is_temporary = absl::c_any_of(
      temporaries_, [&](const Temporary& temporary) { return &temporary.tensor == &whole; });
  part->PointTo(whole, is_temporary ? 0 : begin, count);
}

absl::Status BoundKernel::RunOnPart(const Transfer& transfer, int64_t begin, int64_t count) const {
  Tensor from, to;
  PointTo(*transfer.from, begin, count, &from);
  PointTo(*transfer.to, begin, count, &to);
  return Transfer{transfer.kind, &from, &to, transfer.type}.Run(stream_);
}

KernelContext BoundKernel::PartContext(int64_t begin, int64_t count, int lane) {
  Parts& parts = parts_[lane];
  if (parts.tensors.empty()) {
    const auto add = [&parts](const Tensor* whole) {
      return whole == nullptr ? nullptr : &parts.tensors.emplace_back();
    };
    for (const Tensor* input : inputs_) parts.inputs.push_back(add(input));
    for (Tensor* output : outputs_) parts.outputs.push_back(add(output));
  }
  auto part = parts.tensors.begin();
  for (const Tensor* input : inputs_) {
    if (input != nullptr) PointTo(*input, begin, count, &*part++);
  }
  for (const Tensor* output : outputs_) {
    if (output != nullptr) PointTo(*output, begin, count, &*part++);
  }
  KernelContext ctx = StepContext();
  ctx.inputs = parts.inputs;
  ctx.outputs = parts.outputs;
  return ctx;
}

absl::Status BoundKernel::RunPart(int64_t begin, int64_t count, int lane) {
  for (const Transfer& transfer : before_) {
    WEFT_RETURN_IF_ERROR(RunOnPart(transfer, begin, count));
  }
  WEFT_RETURN_IF_ERROR(Try(step_, PartContext(begin, count, lane)));
  for (const Transfer& transfer : after_) {
    WEFT_RETURN_IF_ERROR(RunOnPart(transfer, begin, count));
  }
  return absl::OkStatus();
}

// Turns WrongElementType into an error that names the slot.
template <typename Step>
absl::Status BoundKernel::Try(const Step& step, const KernelContext& ctx) const {
  try {
    return step(ctx);
  } catch (const WrongElementType& error) {
    if (kernel_.types == nullptr) throw;
    return absl::InvalidArgumentError(
        absl::StrCat(kernel_.types->SlotOf(ctx, error.tensor()), ": ", error.what()));
  }
}

}  // namespace weft
