#include "executor/step/op_runner.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/plan/plan.h"
#include "executor/step/catch_exceptions.h"
#include "executor/step/finite.h"
#include "ops/kernel.h"
#include "ops/schema/tensor_type.h"

namespace weft {

absl::StatusOr<bool> ReadBool(absl::string_view slot, const std::string& variable,
                              const Tensor& tensor) {
  if (tensor.dtype() != DType::kBool || tensor.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": expected one bool in ",
                                                   variable, ", found ", DTypeName(tensor.dtype()),
                                                   DimsToString(tensor.dims())));
  }
  WEFT_ASSIGN_OR_RETURN(const Tensor on_host, tensor.ToHost());
  return *on_host.data<bool>();
}

absl::Status OpRunner::Run(BoundOp* bound) const {
  const auto run = [&] {
    const bool runs_kernel = bound->is_static && bound->communicator == nullptr;
    return runs_kernel ? bound->kernel.RunBound() : RunUnbound(bound);
  };
  if (bound->op->is_copy) {
    const auto begin = std::chrono::steady_clock::now();
    WEFT_RETURN_IF_ERROR(CatchExceptions(run));
    const auto bytes = static_cast<int64_t>(bound->inputs[0]->bytes());
    std::this_thread::sleep_until(begin + options_.device->CopyTime(bytes));
  } else {
    WEFT_RETURN_IF_ERROR(CatchExceptions(run));
  }
  return options_.check_nan ? CheckFinite(*bound) : absl::OkStatus();
}

absl::Status OpRunner::RunUnbound(BoundOp* bound) const {
  if (bound->in_group) return RunInGroup(*bound);
  // The result of a branch that did not run: select_input does not read its mirror either.
  if (bound->op->is_copy && !bound->inputs[0]->allocated()) return absl::OkStatus();
  if (bound->op->kernel_spec.starts_from_zero) GiveTypeToZeros(*bound);
  WEFT_RETURN_IF_ERROR(CheckInputs(*bound));
  if (bound->op->control) return RunControl(bound);
  if (bound->communicator != nullptr) return RunCollective(*bound);
  if (bound->op->server.has_value()) {
    WEFT_RETURN_IF_ERROR(RunServerOp(*bound));
    return CheckOutputs(*bound);
  }
  KernelContext context;
  context.inputs = bound->inputs;
  context.outputs = bound->outputs;
  context.random = options_.resources->random;
  context.place = options_.resources->place;
  context.stream = options_.resources->native_streams[bound->stream];
  WEFT_RETURN_IF_ERROR(bound->kernel.Run(context));
  return CheckOutputs(*bound);
}

// Updates that start from zeros need the types of their parameters, which nothing has written.
void OpRunner::GiveTypeToZeros(const BoundOp& bound) const {
  const KernelSpec::Slot slot = bound.op->kernel_spec.outputs.at("ParamOut");
  for (int out = slot.first; out < slot.first + slot.count; ++out) {
    const Plan::Variable& param = options_.resources->plan->variables[bound.op->outputs[out]];
    bound.outputs[out]->Resize(param.declared->dtype, param.declared->dims);
  }
}

absl::Status OpRunner::RunControl(BoundOp* bound) const {
  Stream& stream = *options_.streams[bound->stream];
  if (Enqueues(bound->stream)) WEFT_RETURN_IF_ERROR(stream.Synchronize());
  ControlContext context;
  context.inputs = bound->input_values;
  context.outputs = bound->output_values;
  context.add = &bound->kernel;
  context.stream = stream.native_handle();
  return bound->op->control(context);
}

// An error ends the group: the others of its collectives are skipped.
absl::Status OpRunner::RunInGroup(const BoundOp& bound) const {
  if (bound.opens_group) WEFT_RETURN_IF_ERROR(bound.communicator->BeginGroup());
  absl::Status status = CatchExceptions([&] {
    const absl::Status inputs = CheckInputs(bound);
    return inputs.ok() ? RunCollective(bound) : inputs;
  });
  if (bound.ends_group || !status.ok()) status.Update(bound.communicator->EndGroup());
  return status;
}

absl::Status OpRunner::RunServerOp(const BoundOp& bound) const {
  if (options_.servers == nullptr) {
    return absl::FailedPreconditionError("expected a run with parameter servers, found none");
  }
  if (Enqueues(bound.stream)) {
    return absl::UnimplementedError("workers and parameter servers exchange tensors of the host");
  }
  return options_.servers->Run(*bound.op, bound.inputs, bound.outputs);
}

absl::Status OpRunner::RunMessage(const BoundOp& bound) const {
  const bool sends = !bound.op->received.has_value();
  const TensorType type =
      sends ? TensorType{bound.inputs[0]->dtype(), bound.inputs[0]->dims()} : *bound.op->received;
  CollectiveCall call;
  call.desc = bound.op->desc;
  call.desc.dtype = type.dtype;
  call.desc.count = NumElements(type.dims);
  call.op = bound.op->name;
  call.variable = NameOf(sends ? bound.op->inputs[0] : bound.op->outputs[0]);
  call.dims = type.dims;
  call.stream = options_.streams[bound.stream]->native_handle();
  if (sends) return bound.communicator->Run(call, bound.inputs[0]->raw(), nullptr);
  bound.outputs[0]->Resize(type.dtype, type.dims);
  return bound.communicator->Run(call, nullptr, bound.outputs[0]->raw());
}

absl::Status OpRunner::RunCollective(const BoundOp& bound) const {
  if (bound.op->desc.kind == CollectiveKind::kSend) return RunMessage(bound);
  if (bound.communicator == OutsideOfRing()) return absl::OkStatus();  // the op works in place
  const Tensor& in = *bound.inputs[0];
  Tensor* out = bound.outputs[0];
  if (bound.inputs.size() > 1 && bound.inputs[1] != nullptr) {
    const Tensor& condition = *bound.inputs[1];
    if (!condition.memory()->IsHost()) {
      WEFT_RETURN_IF_ERROR(options_.streams[bound.stream]->Synchronize());
    }
    WEFT_ASSIGN_OR_RETURN(const bool holds,
                          ReadBool("Cond", NameOf(bound.op->inputs[1]), condition));
    if (!holds) return absl::OkStatus();
  }
  const int nranks = bound.communicator->nranks();
  CollectiveCall call;
  call.desc = bound.op->desc;
  call.desc.dtype = in.dtype();
  call.desc.count = in.size();
  call.op = bound.op->name;
  call.variable = NameOf(bound.op->inputs[0]);
  call.dims = in.dims();
  call.stream = options_.streams[bound.stream]->native_handle();
  if (bound.rows != nullptr) {
    if (!in.is_rows()) {
      return absl::InvalidArgumentError(
          absl::StrCat("X: expected SelectedRows in ", call.variable, ", found a dense tensor"));
    }
    return bound.rows->Run(call, bound.communicator, in, out);
  }
  if (SplitsInput(call.desc.kind) && (in.rank() == 0 || in.dim(0) % nranks != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("X: expected a multiple of ", nranks,
                                                   " rows in ", call.variable, ", found ",
                                                   DTypeName(in.dtype()), DimsToString(in.dims())));
  }
  const Dims out_dims = CollectiveOutputDims(call.desc.kind, in.dims(), nranks);
  const void* from = in.raw();
  if (bound.input_copy != nullptr) {
    bound.input_copy->Resize(in.dtype(), in.dims());
    WEFT_RETURN_IF_ERROR(in.memory()->Copy(from, in.bytes(), bound.input_copy->raw(), call.stream));
    from = bound.input_copy->raw();
  }
  out->Resize(call.desc.dtype, out_dims);
  return bound.communicator->Run(call, from, out->raw());
}

absl::Status OpRunner::CheckInputs(const BoundOp& bound) const {
  if (bound.op->control) return absl::OkStatus();
  for (size_t i = 0; i < bound.inputs.size(); ++i) {
    const Tensor* input = bound.inputs[i];
    if (input == nullptr) continue;
    const bool is_empty = bound.op->reads_inputs && !input->allocated();
    const bool is_unexpected = input->is_rows() && !bound.op->has_rows;
    if (!is_empty && !is_unexpected) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("variable ", NameOf(bound.op->inputs[i]),
                     is_empty ? " is read before it is written"
                              : ": expected a dense tensor, found SelectedRows"));
  }
  return absl::OkStatus();
}

// Other ops are bound to these types.
absl::Status OpRunner::CheckOutputs(const BoundOp& bound) const {
  for (size_t o = 0; o < bound.outputs.size(); ++o) {
    const absl::optional<TensorType>& expected = bound.output_types[o];
    if (bound.outputs[o] == nullptr || !expected.has_value()) continue;
    const Tensor& output = *bound.outputs[o];
    if (output.dtype() == expected->dtype && output.dims() == expected->dims) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("variable ", NameOf(bound.op->outputs[o]), ": expected ", ToString(*expected),
                     ", found ", DTypeName(output.dtype()), DimsToString(output.dims())));
  }
  return absl::OkStatus();
}

absl::Status OpRunner::CheckFinite(const BoundOp& bound) const {
  // It lays out memory, in which there is nothing yet.
  if (bound.op->make_kernel != nullptr && !bound.op->reads_inputs) return absl::OkStatus();
  for (size_t i = 0; i < bound.outputs.size(); ++i) {
    if (bound.outputs[i] == nullptr || !bound.outputs[i]->allocated()) continue;
    if (Enqueues(bound.stream)) WEFT_RETURN_IF_ERROR(options_.streams[bound.stream]->Synchronize());
    WEFT_ASSIGN_OR_RETURN(const Tensor output, bound.outputs[i]->ToHost());
    const absl::string_view found = FirstNonFinite(output);
    if (found.empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("makes ", found, " in variable ", NameOf(bound.op->outputs[i])));
  }
  return absl::OkStatus();
}

// Whether the tasks of a stream only enqueue work.
bool OpRunner::Enqueues(int stream) const {
  return stream != options_.host_thread && !options_.device->memory()->IsHost();
}

}  // namespace weft
