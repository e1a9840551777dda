// What a step consists of: the calls of a bound step (executor/step/bound_step.h).
#ifndef WEFT_EXECUTOR_STEP_STEP_CALLS_H_
#define WEFT_EXECUTOR_STEP_STEP_CALLS_H_

#include <cstdint>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/types/optional.h"
#include "executor/communicators/communicator.h"
#include "executor/communicators/rows_all_reduce.h"
#include "executor/plan/plan.h"
#include "executor/plan/scope.h"
#include "ops/bound_kernel.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"

namespace weft {

// An op of the plan with its arguments.
struct OpCall {
  const Plan::PlanOp* op = nullptr;
  int index = -1;  // of the op in the plan
  std::vector<const Tensor*> inputs;
  std::vector<Tensor*> outputs;
  // By output: the type that ops which read it are bound to; none: they are not.
  std::vector<absl::optional<TensorType>> output_types;
  // Its arguments have the types and the memory that they need: it just runs. For others, types are
  // found and outputs resized in every step.
  bool is_static = false;
};

struct KernelCall : OpCall {
  BoundKernel kernel;
};
// Between two memories.
struct CopyCall : KernelCall {};
// Elementwise ops that take turns on the parts of their values (executor/step/pointwise_chains.h).
struct ChainCall {
  std::vector<KernelCall> ops;
  int64_t size = 0;       // elements
  bool in_parts = false;  // all ops are static; otherwise each runs on the whole
};
struct CollectiveOpCall : OpCall {
  Communicator* communicator = nullptr;
  CollectiveCall call;
  // Of an input that the output replaces, but may not overlap. Null: not needed.
  Tensor* input_copy = nullptr;
};
// Collectives of one op, which start together.
struct GroupCall {
  std::vector<CollectiveOpCall> ops;
};
// A collective on SelectedRows.
struct RowsCall : OpCall {
  Communicator* communicator = nullptr;
  CollectiveCall call;
  RowsAllReduce rows;
};
struct MessageCall : OpCall {
  Communicator* communicator = nullptr;
  CollectiveCall call;
};
struct ControlCall : OpCall {
  BoundKernel add;
  std::vector<const Value*> input_values;
  std::vector<Value*> output_values;
};
struct ServerCall : OpCall {};

// As in Plan::Instruction.
struct RecordCall {
  int event;
};
struct WaitCall {
  int event;
};
struct SynchronizeCall {};
struct BranchCall {
  int branch;
};

struct StepCall {
  int stream = 0;
  // Of ops: the calls from this one to here, exclusive, are one task of the stream.
  int end_of_task = 0;
  // Of an op that a device launches: it takes types, places or elements from values of the host,
  // which must be there by then.
  bool reads_host_now = false;
  std::variant<KernelCall, ChainCall, CopyCall, CollectiveOpCall, GroupCall, RowsCall, MessageCall,
               ControlCall, ServerCall, RecordCall, WaitCall, SynchronizeCall, BranchCall>
      work;
};

// Calls visit(op) for the ops of a call, in order: OpCalls.
template <typename Call, typename Visit>
void ForEachOp(Call& call, Visit visit) {
  std::visit(
      [&](auto& work) {
        using Work = std::decay_t<decltype(work)>;
        if constexpr (std::is_base_of_v<OpCall, Work>) {
          visit(work);
        } else if constexpr (std::is_same_v<Work, ChainCall> || std::is_same_v<Work, GroupCall>) {
          for (auto& op : work.ops) visit(op);
        }
      },
      call.work);
}

// Null for a call without ops.
inline const OpCall* FirstOp(const StepCall& call) {
  const OpCall* first = nullptr;
  ForEachOp(call, [&](const OpCall& op) {
    if (first == nullptr) first = &op;
  });
  return first;
}

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_STEP_CALLS_H_
