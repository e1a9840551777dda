#include "executor/step/op_runner.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/plan/plan.h"
#include "executor/step/catch_exceptions.h"
#include "executor/step/finite.h"
#include "executor/step/pointwise_chains.h"
#include "executor/step/step_types.h"
#include "ops/kernel.h"
#include "ops/schema/tensor_type.h"
#include "ops/threads.h"

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

absl::Status OpRunner::Run(StepCall* call, const OpCall** failed, OpTimes* times) const {
  return std::visit(
      [&](auto& work) -> absl::Status {
        using Work = std::decay_t<decltype(work)>;
        if constexpr (std::is_base_of_v<OpCall, Work>) {
          return RunAndCheck(&work, call->stream, failed);
        } else if constexpr (std::is_same_v<Work, ChainCall>) {
          return RunChain(&work, call->stream, failed, times);
        } else if constexpr (std::is_same_v<Work, GroupCall>) {
          return CatchExceptions([&] { return RunGroup(&work, call->stream, failed); });
        } else {
          return absl::OkStatus();  // no ops
        }
      },
      call->work);
}

template <typename Call>
absl::Status OpRunner::RunAndCheck(Call* call, int stream, const OpCall** failed) const {
  absl::Status status = CatchExceptions([&] { return RunOp(call, stream); });
  if (status.ok() && options_.check_nan) status = CheckFinite(*call, stream);
  if (!status.ok()) *failed = call;
  return status;
}

namespace {

// Adds up the times between calls, by op.
class OpClock {
 public:
  explicit OpClock(OpTimes* times) : times_(times), before_(Now()) {}
  void Add(size_t op) {
    if (times_ == nullptr) return;
    const Clock::time_point now = Now();
    (*times_)[op] += now - std::exchange(before_, now);
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point Now() const { return times_ == nullptr ? Clock::time_point() : Clock::now(); }

  OpTimes* const times_;
  Clock::time_point before_;
};

}  // namespace

absl::Status OpRunner::RunChain(ChainCall* chain, int stream, const OpCall** failed,
                                OpTimes* times) const {
  if (times != nullptr) times->resize(chain->ops.size());
  if (!chain->in_parts) {
    OpClock clock(times);
    for (size_t i = 0; i < chain->ops.size(); ++i) {
      WEFT_RETURN_IF_ERROR(RunAndCheck(&chain->ops[i], stream, failed));
      clock.Add(i);
    }
    return absl::OkStatus();
  }
  const int64_t num_parts = (chain->size + kPointwisePart - 1) / kPointwisePart;
  const auto num_lanes = std::min<int64_t>(KernelThreads(), num_parts);
  std::mutex mutex;
  absl::Status status;
  int64_t failed_lane = num_lanes;
  ForEachPart(num_lanes, 1, [&](int64_t begin, int64_t end) {
    for (int64_t lane = begin; lane < end; ++lane) {
      const OpCall* failed_op = nullptr;
      absl::Status of_lane =
          RunParts(chain, num_parts * lane / num_lanes, num_parts * (lane + 1) / num_lanes,
                   static_cast<int>(lane), &failed_op, lane == 0 ? times : nullptr);
      if (of_lane.ok()) continue;
      const std::lock_guard<std::mutex> lock(mutex);
      if (lane > failed_lane) continue;  // the first part that fails says why
      failed_lane = lane;
      status = std::move(of_lane);
      *failed = failed_op;
    }
  });
  return status;
}

absl::Status OpRunner::RunParts(ChainCall* chain, int64_t first_part, int64_t end_part, int lane,
                                const OpCall** failed, OpTimes* times) const {
  OpClock clock(times);
  for (int64_t part = first_part; part < end_part; ++part) {
    const int64_t begin = part * kPointwisePart;
    const int64_t count = std::min(kPointwisePart, chain->size - begin);
    for (size_t i = 0; i < chain->ops.size(); ++i) {
      KernelCall& op = chain->ops[i];
      absl::Status status = CatchExceptions([&] { return op.kernel.RunPart(begin, count, lane); });
      if (status.ok() && options_.check_nan) status = CheckPart(op, begin, count);
      if (!status.ok()) *failed = &op;
      WEFT_RETURN_IF_ERROR(status);
      clock.Add(i);
    }
  }
  return absl::OkStatus();
}

// An error ends the group: the others of its collectives are skipped.
absl::Status OpRunner::RunGroup(GroupCall* group, int stream, const OpCall** failed) const {
  Communicator* const communicator = group->ops[0].communicator;
  *failed = group->ops.data();
  WEFT_RETURN_IF_ERROR(communicator->BeginGroup());
  absl::Status status;
  for (CollectiveOpCall& op : group->ops) {
    *failed = &op;
    status = CatchExceptions([&] { return RunOp(&op, stream); });
    if (!status.ok()) break;
  }
  status.Update(communicator->EndGroup());
  for (const CollectiveOpCall& op : group->ops) {
    if (!status.ok() || !options_.check_nan) break;
    *failed = &op;
    status = CheckFinite(op, stream);
  }
  return status;
}

absl::Status OpRunner::RunOp(KernelCall* call, int stream) const {
  if (call->is_static) return call->kernel.RunBound();
  if (call->op->kernel_spec.starts_from_zero) GiveTypeToZeros(*call);
  WEFT_RETURN_IF_ERROR(CheckInputs(*call));
  WEFT_RETURN_IF_ERROR(call->kernel.Run(
      options_.resources->ContextOf(call->index, call->inputs, call->outputs, stream)));
  return CheckOutputs(*call);
}

absl::Status OpRunner::RunOp(CopyCall* call, int stream) const {
  // The result of a branch that did not run: select_input does not read its mirror either.
  if (!call->is_static && !call->inputs[0]->allocated()) return absl::OkStatus();
  const auto bytes = static_cast<int64_t>(call->inputs[0]->bytes());
  const std::chrono::nanoseconds least = options_.device->CopyTime(bytes);
  if (least.count() == 0) return RunOp(static_cast<KernelCall*>(call), stream);
  const auto begin = std::chrono::steady_clock::now();
  WEFT_RETURN_IF_ERROR(RunOp(static_cast<KernelCall*>(call), stream));
  std::this_thread::sleep_until(begin + least);
  return absl::OkStatus();
}

// Updates that start from zeros need the types of their parameters, which nothing has written.
void OpRunner::GiveTypeToZeros(const OpCall& call) const {
  const KernelSpec::Slot slot = call.op->kernel_spec.outputs.at("ParamOut");
  for (int out = slot.first; out < slot.first + slot.count; ++out) {
    const Plan::Variable& param = options_.resources->plan->variables[call.op->outputs[out]];
    call.outputs[out]->Resize(param.declared->dtype, param.declared->dims);
  }
}

absl::Status OpRunner::RunOp(ControlCall* call, int stream) const {
  if (Enqueues(stream)) WEFT_RETURN_IF_ERROR(options_.streams[stream]->Synchronize());
  ControlContext context;
  context.inputs = call->input_values;
  context.outputs = absl::MakeSpan(call->output_values);
  context.add = &call->add;
  context.stream = options_.resources->native_streams[stream];
  return std::get<Plan::ControlWork>(call->op->work).move(context);
}

absl::Status OpRunner::RunOp(ServerCall* call, int stream) const {
  WEFT_RETURN_IF_ERROR(CheckInputs(*call));
  if (options_.servers == nullptr) {
    return absl::FailedPreconditionError("expected a run with parameter servers, found none");
  }
  if (Enqueues(stream)) {
    return absl::UnimplementedError("workers and parameter servers exchange tensors of the host");
  }
  WEFT_RETURN_IF_ERROR(
      options_.servers->Run(*call->op, call->inputs, absl::MakeSpan(call->outputs)));
  return CheckOutputs(*call);
}

absl::Status OpRunner::RunOp(MessageCall* call, int /*stream*/) const {
  const bool sends = call->outputs.empty();
  if (!call->is_static) {
    WEFT_RETURN_IF_ERROR(CheckInputs(*call));
    const TensorType type = sends ? TensorType{call->inputs[0]->dtype(), call->inputs[0]->dims()}
                                  : *std::get<Plan::MessageWork>(call->op->work).received;
    SetType(type, &call->call);
    if (!sends) call->outputs[0]->Resize(type.dtype, type.dims);
  }
  return call->communicator->Run(call->call, sends ? call->inputs[0]->raw() : nullptr,
                                 sends ? nullptr : call->outputs[0]->raw());
}

// Whether the rank takes part in a collective: it is in the ring, and the condition holds.
absl::StatusOr<bool> OpRunner::MayRun(const OpCall& call, const Communicator* communicator,
                                      int stream) const {
  if (communicator == OutsideOfRing()) return false;  // the op works in place
  if (call.inputs.size() < 2 || call.inputs[1] == nullptr) return true;
  const Tensor& condition = *call.inputs[1];
  if (!condition.memory()->IsHost()) {
    WEFT_RETURN_IF_ERROR(options_.streams[stream]->Synchronize());
  }
  return ReadBool("Cond", NameOf(call.op->inputs[1]), condition);
}

absl::Status OpRunner::RunOp(RowsCall* call, int stream) const {
  WEFT_RETURN_IF_ERROR(CheckInputs(*call));
  WEFT_ASSIGN_OR_RETURN(const bool runs, MayRun(*call, call->communicator, stream));
  if (!runs) return absl::OkStatus();
  const Tensor& in = *call->inputs[0];
  SetType({in.dtype(), in.dims()}, &call->call);
  if (!in.is_rows()) {
    return absl::InvalidArgumentError(absl::StrCat("X: expected SelectedRows in ",
                                                   call->call.variable, ", found a dense tensor"));
  }
  return call->rows.Run(call->call, call->communicator, in, call->outputs[0]);
}

absl::Status OpRunner::RunOp(CollectiveOpCall* call, int stream) const {
  if (!call->is_static || call->inputs.size() > 1) WEFT_RETURN_IF_ERROR(CheckInputs(*call));
  WEFT_ASSIGN_OR_RETURN(const bool runs, MayRun(*call, call->communicator, stream));
  if (!runs) return absl::OkStatus();
  const Tensor& in = *call->inputs[0];
  if (!call->is_static) WEFT_RETURN_IF_ERROR(FitTypes(call));
  const void* from = in.raw();
  if (call->input_copy != nullptr) {
    WEFT_RETURN_IF_ERROR(
        in.memory()->Copy(from, in.bytes(), call->input_copy->raw(), call->call.stream));
    from = call->input_copy->raw();
  }
  if (!call->is_static) {
    const int nranks = call->communicator->nranks();
    call->outputs[0]->Resize(call->call.desc.dtype,
                             CollectiveOutputDims(call->call.desc.kind, in.dims(), nranks));
  }
  return call->communicator->Run(call->call, from, call->outputs[0]->raw());
}

// Of a collective that finds its types in the step.
absl::Status OpRunner::FitTypes(CollectiveOpCall* call) const {
  const Tensor& in = *call->inputs[0];
  const int nranks = call->communicator->nranks();
  SetType({in.dtype(), in.dims()}, &call->call);
  if (SplitsInput(call->call.desc.kind) && (in.rank() == 0 || in.dim(0) % nranks != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("X: expected a multiple of ", nranks,
                                                   " rows in ", call->call.variable, ", found ",
                                                   DTypeName(in.dtype()), DimsToString(in.dims())));
  }
  if (call->input_copy != nullptr) call->input_copy->Resize(in.dtype(), in.dims());
  return absl::OkStatus();
}

absl::Status OpRunner::CheckInputs(const OpCall& call) const {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor* input = call.inputs[i];
    if (input == nullptr) continue;
    const bool is_empty = call.op->reads_inputs && !input->allocated();
    const bool is_unexpected = input->is_rows() && !call.op->has_rows;
    if (!is_empty && !is_unexpected) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("variable ", NameOf(call.op->inputs[i]),
                     is_empty ? " is read before it is written"
                              : ": expected a dense tensor, found SelectedRows"));
  }
  return absl::OkStatus();
}

// Other ops are bound to these types.
absl::Status OpRunner::CheckOutputs(const OpCall& call) const {
  for (size_t o = 0; o < call.outputs.size(); ++o) {
    const absl::optional<TensorType>& expected = call.output_types[o];
    if (call.outputs[o] == nullptr || !expected.has_value()) continue;
    const Tensor& output = *call.outputs[o];
    if (output.dtype() == expected->dtype && output.dims() == expected->dims) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("variable ", NameOf(call.op->outputs[o]), ": expected ", ToString(*expected),
                     ", found ", DTypeName(output.dtype()), DimsToString(output.dims())));
  }
  return absl::OkStatus();
}

absl::Status OpRunner::CheckFinite(const OpCall& call, int stream) const {
  // It lays out memory, in which there is nothing yet.
  if (!call.op->reads_inputs && call.op->factory() != nullptr) return absl::OkStatus();
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (call.outputs[i] == nullptr || !call.outputs[i]->allocated()) continue;
    if (Enqueues(stream)) WEFT_RETURN_IF_ERROR(options_.streams[stream]->Synchronize());
    const DeviceFault& fault = *options_.resources->fault;
    if (fault.op == call.index) WEFT_RETURN_IF_ERROR(ToStatus(fault));
    WEFT_ASSIGN_OR_RETURN(const Tensor output, call.outputs[i]->ToHost());
    WEFT_RETURN_IF_ERROR(CheckFinite(output, call.op->outputs[i]));
  }
  return absl::OkStatus();
}

// Elements of the outputs of an op in a chain: later ops may replace them.
absl::Status OpRunner::CheckPart(const OpCall& call, int64_t begin, int64_t count) const {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (call.outputs[i] == nullptr) continue;
    Tensor part;
    part.PointTo(*call.outputs[i], begin, count);
    WEFT_RETURN_IF_ERROR(CheckFinite(part, call.op->outputs[i]));
  }
  return absl::OkStatus();
}

absl::Status OpRunner::CheckFinite(const Tensor& values, int variable) const {
  const absl::string_view found = FirstNonFinite(values);
  if (found.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("makes ", found, " in variable ", NameOf(variable)));
}

// Whether the tasks of a stream only enqueue work.
bool OpRunner::Enqueues(int stream) const {
  return stream != options_.host_thread && !options_.device->memory()->IsHost();
}

}  // namespace weft
