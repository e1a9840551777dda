#include "executor/plan/control_kernels.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

absl::Status HoldsNothing(absl::string_view slot) {
  return absl::FailedPreconditionError(
      absl::StrCat("input ", slot, " is read before it is written"));
}

bool HoldsSomething(const Value* value) {
  return value != nullptr && (value->tensor.allocated() || !value->elements.empty());
}

// Shares the buffers of array elements. Copies a tensor, because it may be a slice of a fused
// buffer.
absl::Status Copy(const Value& x, Value* out) {
  if (&x == out) return absl::OkStatus();
  out->elements = x.elements;
  return out->tensor.CopyFrom(x.tensor);
}

absl::Status Zero(const Tensor& like, Tensor* out) {
  out->Resize(like.dtype(), like.dims());
  const std::vector<char> zeros(out->bytes());  // zero in every element type
  return out->memory()->CopyFromHost(zeros.data(), zeros.size(), out->raw());
}

// Reads the single element of a tensor. It must be in [0, limit).
absl::StatusOr<int64_t> Index(absl::string_view slot, const Value* value, int64_t limit) {
  if (!HoldsSomething(value)) return HoldsNothing(slot);
  WEFT_ASSIGN_OR_RETURN(const Tensor tensor, value->tensor.ToHost());
  int64_t index = -1;
  if (tensor.size() == 1 && tensor.dtype() == DType::kBool) {
    index = *tensor.data<bool>() ? 1 : 0;
  } else if (tensor.size() == 1 && tensor.dtype() == DType::kInt32) {
    index = *tensor.data<int32_t>();
  } else if (tensor.size() == 1 && tensor.dtype() == DType::kInt64) {
    index = *tensor.data<int64_t>();
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("input ", slot, ": expected one int32, int64 or bool, found ",
                     DTypeName(tensor.dtype()), DimsToString(tensor.dims())));
  }
  if (index >= 0 && index < limit) return index;
  return absl::InvalidArgumentError(
      absl::StrCat("input ", slot, ": ", index, " is not in [0, ", limit, ")"));
}

// The slot of `slots` with this name, or a slot with count 0.
KernelSpec::Slot SlotOf(const absl::flat_hash_map<std::string, KernelSpec::Slot>& slots,
                        absl::string_view name) {
  const auto it = slots.find(name);
  return it == slots.end() ? KernelSpec::Slot() : it->second;
}

const Value* In(const ControlContext& ctx, int i) { return i < 0 ? nullptr : ctx.inputs[i]; }
Value* Out(const ControlContext& ctx, int i) { return i < 0 ? nullptr : ctx.outputs[i]; }

// --- Selecting ----------------------------------------------------------------------------------

ControlKernel SelectInput(const KernelSpec& spec) {
  const int mask = spec.Input("Mask"), out = spec.Output("Out");
  const KernelSpec::Slot xs = SlotOf(spec.inputs, "X");
  return [=](const ControlContext& ctx) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const int64_t selected, Index("Mask", In(ctx, mask), xs.count));
    const Value* x = ctx.inputs[xs.first + selected];
    if (!HoldsSomething(x)) {
      return absl::FailedPreconditionError(
          absl::StrCat("input X: variable ", selected, " is read before it is written"));
    }
    return Out(ctx, out) == nullptr ? absl::OkStatus() : Copy(*x, Out(ctx, out));
  };
}

ControlKernel SelectOutput(const KernelSpec& spec) {
  const int mask = spec.Input("Mask"), x = spec.Input("X");
  const KernelSpec::Slot outs = SlotOf(spec.outputs, "Out");
  return [=](const ControlContext& ctx) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const int64_t selected, Index("Mask", In(ctx, mask), outs.count));
    if (!HoldsSomething(In(ctx, x))) return HoldsNothing("X");
    Value* out = ctx.outputs[outs.first + selected];
    return out == nullptr ? absl::OkStatus() : Copy(*In(ctx, x), out);
  };
}

// --- Arrays -------------------------------------------------------------------------------------

ControlKernel WriteToArray(const KernelSpec& spec) {
  const int x = spec.Input("X"), i = spec.Input("I"), out = spec.Output("Out");
  return [=](const ControlContext& ctx) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const int64_t index, Index("I", In(ctx, i), kMaxArrayLength));
    if (!HoldsSomething(In(ctx, x))) return HoldsNothing("X");
    const Tensor& from = In(ctx, x)->tensor;
    std::vector<Value>& elements = Out(ctx, out)->elements;
    if (index >= static_cast<int64_t>(elements.size())) elements.resize(index + 1);
    Tensor& to = elements[index].tensor;
    if (!to.allocated()) to = Tensor(from.memory());
    return to.CopyFrom(from);
  };
}

ControlKernel ReadFromArray(const KernelSpec& spec) {
  const int x = spec.Input("X"), i = spec.Input("I"), written = spec.Input("X_W");
  const int out = spec.Output("Out");
  return [=](const ControlContext& ctx) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const int64_t index, Index("I", In(ctx, i), kMaxArrayLength));
    const std::vector<Value>& elements = In(ctx, x)->elements;
    if (index < static_cast<int64_t>(elements.size()) && elements[index].tensor.allocated()) {
      return Out(ctx, out)->tensor.CopyFrom(elements[index].tensor);
    }
    if (HoldsSomething(In(ctx, written))) {
      return Zero(In(ctx, written)->tensor, &Out(ctx, out)->tensor);
    }
    return absl::FailedPreconditionError(
        absl::StrCat("input X: element ", index, " of ", elements.size(), " was not written"));
  };
}

ControlKernel ArrayLength(const KernelSpec& spec) {
  const int x = spec.Input("X"), out = spec.Output("Out");
  return [=](const ControlContext& ctx) -> absl::Status {
    const auto length = static_cast<int64_t>(In(ctx, x)->elements.size());
    Tensor& to = Out(ctx, out)->tensor;
    to.Resize(DType::kInt64, {1});
    return to.memory()->CopyFromHost(&length, sizeof(length), to.raw());
  };
}

// How the elements of an array are positioned in the joined tensor.
struct Joined {
  Dims dims;
  int axis = 0;
  int64_t outer = 1;                // blocks to which each element contributes a piece
  std::vector<size_t> piece_bytes;  // per element
  std::vector<int32_t> lengths;     // along the axis
};

absl::StatusOr<Joined> Join(const std::vector<Value>& elements, int64_t axis, bool stack) {
  if (elements.empty()) return absl::FailedPreconditionError("input X: the array has no elements");
  const Tensor& first = elements[0].tensor;
  Joined joined;
  joined.dims = first.dims();
  if (stack) joined.dims.push_back(1);
  WEFT_ASSIGN_OR_RETURN(joined.axis, CheckedAxis(axis, joined.dims));
  int64_t length = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    const Tensor& element = elements[i].tensor;
    if (!element.allocated()) {
      return absl::FailedPreconditionError(
          absl::StrCat("input X: element ", i, " of ", elements.size(), " was not written"));
    }
    Dims dims = element.dims();
    bool fits = element.rank() == first.rank() && element.dtype() == first.dtype();
    if (fits && stack) dims.insert(dims.begin() + joined.axis, 1);
    if (i == 0) joined.dims = dims;
    if (fits) {
      joined.lengths.push_back(static_cast<int32_t>(std::exchange(dims[joined.axis], 0)));
      joined.dims[joined.axis] = 0;
      fits = dims == joined.dims;
    }
    if (!fits) {
      return absl::InvalidArgumentError(
          absl::StrCat("input X: expected elements like the first one, ", DTypeName(first.dtype()),
                       DimsToString(first.dims()), ", found ", DTypeName(element.dtype()),
                       DimsToString(element.dims()), " in element ", i));
    }
    length += joined.lengths.back();
  }
  joined.dims[joined.axis] = length;
  for (int d = 0; d < joined.axis; ++d) joined.outer *= joined.dims[d];
  for (const Value& element : elements) {
    joined.piece_bytes.push_back(joined.outer == 0 ? 0 : element.tensor.bytes() / joined.outer);
  }
  return joined;
}

// Calls copy(i, offset in element i, offset in the joined tensor, bytes) for every piece.
template <typename CopyPiece>
absl::Status ForEachPiece(const Joined& joined, CopyPiece copy) {
  size_t offset = 0;
  for (int64_t block = 0; block < joined.outer; ++block) {
    for (size_t i = 0; i < joined.piece_bytes.size(); ++i) {
      const size_t bytes = joined.piece_bytes[i];
      if (bytes > 0) WEFT_RETURN_IF_ERROR(copy(i, block * bytes, offset, bytes));
      offset += bytes;
    }
  }
  return absl::OkStatus();
}

ControlKernel ArrayToTensor(const KernelSpec& spec) {
  const int x = spec.Input("X"), out = spec.Output("Out"), lengths = spec.Output("OutIndex");
  const int64_t axis = spec.attrs.Int("axis");
  const bool stack = spec.attrs.Bool("use_stack");
  return [=](const ControlContext& ctx) -> absl::Status {
    const std::vector<Value>& elements = In(ctx, x)->elements;
    WEFT_ASSIGN_OR_RETURN(const Joined joined, Join(elements, axis, stack));
    Tensor& to = Out(ctx, out)->tensor;
    to.Resize(elements[0].tensor.dtype(), joined.dims);
    if (Value* index = Out(ctx, lengths); index != nullptr) {
      index->tensor.Resize(DType::kInt32, {static_cast<int64_t>(joined.lengths.size())});
      WEFT_RETURN_IF_ERROR(index->tensor.memory()->CopyFromHost(
          joined.lengths.data(), index->tensor.bytes(), index->tensor.raw()));
    }
    return ForEachPiece(joined, [&](size_t i, size_t from, size_t at, size_t bytes) {
      return to.memory()->Copy(static_cast<const char*>(elements[i].tensor.raw()) + from, bytes,
                               static_cast<char*>(to.raw()) + at, ctx.stream);
    });
  };
}

ControlKernel ArrayToTensorGrad(const KernelSpec& spec) {
  const int x = spec.Input("X"), dout = spec.Input("Out@GRAD"), dx = spec.Output("X@GRAD");
  const int64_t axis = spec.attrs.Int("axis");
  const bool stack = spec.attrs.Bool("use_stack");
  return [=](const ControlContext& ctx) -> absl::Status {
    if (Out(ctx, dx) == nullptr) return absl::OkStatus();
    if (!HoldsSomething(In(ctx, dout))) return HoldsNothing("Out@GRAD");
    const std::vector<Value>& elements = In(ctx, x)->elements;
    const Tensor& from = In(ctx, dout)->tensor;
    WEFT_ASSIGN_OR_RETURN(const Joined joined, Join(elements, axis, stack));
    WEFT_RETURN_IF_ERROR(CheckDims("Out@GRAD", from, joined.dims));
    std::vector<Value>& gradients = Out(ctx, dx)->elements;
    gradients.resize(elements.size());
    for (size_t i = 0; i < elements.size(); ++i) {
      Tensor& gradient = gradients[i].tensor;
      if (!gradient.allocated()) gradient = Tensor(from.memory());
      gradient.Resize(from.dtype(), elements[i].tensor.dims());
    }
    return ForEachPiece(joined, [&](size_t i, size_t to, size_t at, size_t bytes) {
      return from.memory()->Copy(static_cast<const char*>(from.raw()) + at, bytes,
                                 static_cast<char*>(gradients[i].tensor.raw()) + to, ctx.stream);
    });
  };
}

// *sum += x. If *sum has no value, it shares the value of x.
absl::Status Add(const ControlContext& ctx, const Tensor& x, Tensor* sum) {
  if (!x.allocated()) return absl::OkStatus();
  if (!sum->allocated()) {
    *sum = x;
    return absl::OkStatus();
  }
  if (x.is_rows() || sum->is_rows()) {
    return absl::UnimplementedError("no kernel for sums of SelectedRows in a loop or an array");
  }
  const Tensor* terms[] = {sum, &x};
  KernelContext add;
  add.inputs = terms;
  add.outputs = absl::MakeSpan(&sum, 1);
  add.stream = ctx.stream;
  return ctx.add->Run(add);
}

absl::Status AddElements(const ControlContext& ctx, const Value& x, Value* sum) {
  if (sum->elements.size() < x.elements.size()) sum->elements.resize(x.elements.size());
  for (size_t i = 0; i < x.elements.size(); ++i) {
    WEFT_RETURN_IF_ERROR(Add(ctx, x.elements[i].tensor, &sum->elements[i].tensor));
  }
  return absl::OkStatus();
}

ControlKernel AssignArray(const KernelSpec& spec) {
  const int x = spec.Input("X"), out = spec.Output("Out");
  return [=](const ControlContext& ctx) { return Copy(*In(ctx, x), Out(ctx, out)); };
}

ControlKernel SumArrays(const KernelSpec& spec) {
  const KernelSpec::Slot xs = SlotOf(spec.inputs, "X");
  const int out = spec.Output("Out");
  return [=](const ControlContext& ctx) -> absl::Status {
    Value sum;
    for (const Value* x : ctx.inputs.subspan(xs.first, xs.count)) {
      if (x != nullptr) WEFT_RETURN_IF_ERROR(AddElements(ctx, *x, &sum));
    }
    Out(ctx, out)->elements = std::move(sum.elements);
    return absl::OkStatus();
  };
}

using Factories = absl::flat_hash_map<std::string, ControlKernelFactory>;

const ControlKernelFactory* FindIn(const Factories& factories, absl::string_view op_type) {
  const auto it = factories.find(op_type);
  return it == factories.end() ? nullptr : &it->second;
}

}  // namespace

const ControlKernelFactory* FindControlKernel(absl::string_view op_type) {
  static const Factories& factories = *new Factories({
      {"lod_array_length", ArrayLength},
      {"read_from_array", ReadFromArray},
      {"select_input", SelectInput},
      {"select_output", SelectOutput},
      {"tensor_array_to_tensor", ArrayToTensor},
      {"tensor_array_to_tensor_grad", ArrayToTensorGrad},
      {"write_to_array", WriteToArray},
  });
  return FindIn(factories, op_type);
}

bool IsRecurrent(const OpSchema& schema) { return schema.FindAttr("ex_states") != nullptr; }

bool SelectsInput(absl::string_view op_type) { return op_type == "select_input"; }

const ControlKernelFactory* FindArrayKernel(absl::string_view op_type) {
  static const Factories& factories = *new Factories({{"assign", AssignArray}, {"sum", SumArrays}});
  return FindIn(factories, op_type);
}

absl::Status CopyValue(const ControlContext& ctx) { return Copy(*ctx.inputs[0], ctx.outputs[0]); }

absl::Status ZerosLike(const ControlContext& ctx) {
  const Value& x = *ctx.inputs[0];
  std::vector<Value>& elements = ctx.outputs[0]->elements;
  elements.resize(x.elements.size());
  for (size_t i = 0; i < elements.size(); ++i) {
    if (!x.elements[i].tensor.allocated()) continue;
    elements[i].tensor = Tensor(x.elements[i].tensor.memory());
    WEFT_RETURN_IF_ERROR(Zero(x.elements[i].tensor, &elements[i].tensor));
  }
  if (x.tensor.allocated()) return Zero(x.tensor, &ctx.outputs[0]->tensor);
  return ctx.outputs[0]->tensor.CopyFrom(x.tensor);
}

absl::Status AddTo(const ControlContext& ctx) {
  WEFT_RETURN_IF_ERROR(AddElements(ctx, *ctx.inputs[1], ctx.outputs[0]));
  return Add(ctx, ctx.inputs[1]->tensor, &ctx.outputs[0]->tensor);
}

absl::Status ClearElements(const ControlContext& ctx) {
  for (Value* value : ctx.outputs) value->elements.clear();
  return absl::OkStatus();
}

absl::Status BeginIteration(const ControlContext& ctx) {
  std::vector<Value>& iteration = ctx.outputs[0]->elements.emplace_back().elements;
  for (const Value* value : ctx.inputs) iteration.push_back(*value);
  return absl::OkStatus();
}

absl::Status EndIteration(const ControlContext& ctx) {
  std::vector<Value>& iteration = ctx.outputs[0]->elements.back().elements;
  for (Value* value : ctx.outputs.subspan(1)) {
    Value empty{Tensor(value->tensor.memory()), {}};
    iteration.push_back(std::exchange(*value, std::move(empty)));
  }
  return absl::OkStatus();
}

ControlKernel SplitSteps(StepOrder order) {
  return [order](const ControlContext& ctx) -> absl::Status {
    std::vector<Value>& iterations = ctx.outputs[0]->elements;
    iterations.clear();
    for (size_t k = 0; k < ctx.inputs.size(); ++k) {
      const Tensor& sequence = ctx.inputs[k]->tensor;
      if (!sequence.allocated()) return HoldsNothing("inputs");
      if (sequence.rank() == 0 || sequence.is_rows()) {
        return absl::InvalidArgumentError("input inputs: expected a sequence along dimension 0");
      }
      const auto length = static_cast<size_t>(sequence.dim(0));
      if (k == 0) iterations.resize(length);
      if (length != iterations.size()) {
        return absl::InvalidArgumentError(absl::StrCat("input inputs: expected sequences of ",
                                                       iterations.size(),
                                                       " steps, as the first one, found ", length));
      }
      const Dims dims(sequence.dims().begin() + 1, sequence.dims().end());
      for (size_t i = 0; i < length; ++i) {
        const size_t step = order == StepOrder::kForward ? i : length - 1 - i;
        Value& value = iterations[i].elements.emplace_back(Value{Tensor(sequence.memory()), {}});
        value.tensor.Resize(sequence.dtype(), dims);
        const size_t bytes = value.tensor.bytes();
        if (bytes == 0) continue;
        WEFT_RETURN_IF_ERROR(
            sequence.memory()->Copy(static_cast<const char*>(sequence.raw()) + step * bytes, bytes,
                                    value.tensor.raw(), ctx.stream));
      }
    }
    return absl::OkStatus();
  };
}

absl::Status AppendStep(const ControlContext& ctx) {
  const Tensor& step = ctx.inputs[0]->tensor;
  if (!step.allocated()) return HoldsNothing("outputs");
  Value& value = ctx.outputs[0]->elements.emplace_back(Value{Tensor(step.memory()), {}});
  return value.tensor.CopyFrom(step);
}

ControlKernel StackSteps(StepOrder order) {
  return [order](const ControlContext& ctx) -> absl::Status {
    const std::vector<Value>& steps = ctx.inputs[0]->elements;
    if (steps.empty()) return absl::InvalidArgumentError("input inputs: expected a step");
    const Tensor& first = steps[0].tensor;
    Dims dims = first.dims();
    dims.insert(dims.begin(), static_cast<int64_t>(steps.size()));
    Tensor& to = ctx.outputs[0]->tensor;
    to.Resize(first.dtype(), dims);
    for (size_t i = 0; i < steps.size(); ++i) {
      const Tensor& step = steps[order == StepOrder::kForward ? i : steps.size() - 1 - i].tensor;
      if (step.dims() != first.dims() || step.dtype() != first.dtype()) {
        return absl::InvalidArgumentError(
            absl::StrCat("output outputs: expected steps of ", DTypeName(first.dtype()),
                         DimsToString(first.dims()), ", found ", DTypeName(step.dtype()),
                         DimsToString(step.dims())));
      }
      if (step.bytes() == 0) continue;
      WEFT_RETURN_IF_ERROR(to.memory()->Copy(
          step.raw(), step.bytes(), static_cast<char*>(to.raw()) + i * step.bytes(), ctx.stream));
    }
    return absl::OkStatus();
  };
}

absl::Status PopIteration(const ControlContext& ctx) {
  std::vector<Value>& iterations = ctx.outputs[0]->elements;
  std::vector<Value> iteration = std::move(iterations.back().elements);
  iterations.pop_back();
  for (size_t i = 0; i < iteration.size(); ++i) *ctx.outputs[i + 1] = std::move(iteration[i]);
  return absl::OkStatus();
}

}  // namespace weft
