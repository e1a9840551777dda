#include "executor/run/memory_estimate.h"

#include <sys/mman.h>

#include <memory>
#include <new>
#include <set>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "executor/communicators/local_communicator.h"
#include "executor/plan/scope.h"
#include "executor/rewrites/rewrites.h"
#include "executor/step/step_resources.h"
#include "executor/streams/stream.h"
#include "executor/streams/thread_stream.h"
#include "ops/analysis/values/layout_guess.h"
#include "ops/memory.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

// Addresses of the host. The system gives them memory, zeros, where something is written.
class Addresses : public Memory {
 public:
  bool IsHost() const override { return true; }
  std::shared_ptr<void> Allocate(size_t bytes) override {
    void* const begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) throw std::bad_alloc();
    return std::shared_ptr<void>(begin, [bytes](void* mapped) { munmap(mapped, bytes); });
  }
  absl::Status CopyFromHost(const void* from, size_t bytes, void* to) override {
    return HostMemory()->CopyFromHost(from, bytes, to);
  }
  absl::Status CopyToHost(const void* from, size_t bytes, void* to) override {
    return HostMemory()->CopyToHost(from, bytes, to);
  }
  absl::Status Copy(const void* from, size_t bytes, void* to, void* stream) override {
    return HostMemory()->Copy(from, bytes, to, stream);
  }
};

// The host, with addresses instead of memory.
class AddressDevice : public Device {
 public:
  Memory* memory() override { return &addresses_; }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(absl::string_view name) override {
    return host_->NewComputeStream(name);  // without a thread: nothing runs
  }
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override { return host_->NewEvent(); }

 private:
  Addresses addresses_;
  const std::unique_ptr<Device> host_ = NewHostDevice();
};

// The type of a variable that has a value when a step begins; none: unknown.
absl::optional<TensorType> TypeOf(const Plan::Variable& variable, const FeedLayouts& layouts,
                                  int64_t batch) {
  if (!variable.declared.has_value() || variable.declared->kind != TensorType::Kind::kDense) {
    return absl::nullopt;
  }
  TensorType type = *variable.declared;
  const auto layout = layouts.find(variable.name);
  const absl::optional<int> axis = layout == layouts.end() ? 0 : layout->second.axis;
  if (axis.has_value() && *axis < static_cast<int>(type.dims.size()) && type.dims[*axis] == -1) {
    type.dims[*axis] = batch;
  }
  if (NumElements(type.dims) < 0) return absl::nullopt;
  return type;
}

// What blocks read and write is in no arena, and stays from one step to the next. Parts of a buffer
// lie in the last one that has them; where in it, does not matter.
void AllocateForBlocks(const Plan& plan, const FeedLayouts& layouts, int64_t batch,
                       PlanExecutor* executor) {
  const PlanAccesses accesses(plan);
  std::vector<bool> is_of_block = accesses.is_loose;
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    if (plan.instructions[i].kind != Plan::Instruction::Kind::kRunOp || !accesses.in_block[i]) {
      continue;
    }
    for (int v : plan.ops[plan.instructions[i].index].inputs) {
      if (v >= 0) is_of_block[v] = true;
    }
  }
  const auto allocate = [&](int v) {
    if (v < 0 || !is_of_block[v] || executor->tensor(v)->allocated()) return;
    const absl::optional<TensorType> type = TypeOf(plan.variables[v], layouts, batch);
    if (!type.has_value() || NumElements(type->dims) > kMaxElements) return;
    executor->tensor(v)->Resize(type->dtype, type->dims);
  };
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    if (plan.instructions[i].kind != Plan::Instruction::Kind::kRunOp) continue;
    const Plan::PlanOp& op = plan.ops[plan.instructions[i].index];
    for (int v : op.outputs) allocate(v);
    const int made = op.kernel_spec.Output(kBufferSlot);
    if (made < 0 || !accesses.in_block[i]) continue;
    const Tensor& buffer = *executor->tensor(op.outputs[made]);
    int64_t begin = 0;
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      const int part = op.outputs[k];
      if (static_cast<int>(k) == made || part < 0) continue;
      const int64_t elements = executor->tensor(part)->size();
      if (begin + elements > buffer.size()) break;
      executor->tensor(part)->PointTo(buffer, begin, elements);
      begin += elements;
    }
  }
}

// Variables of the ops that run.
int64_t CountUnallocated(const Plan& plan, PlanExecutor* executor) {
  std::set<int> unallocated;
  for (const Plan::Instruction& instruction : plan.instructions) {
    if (instruction.kind != Plan::Instruction::Kind::kRunOp) continue;
    const Plan::PlanOp& op = plan.ops[instruction.index];
    for (const std::vector<int>* variables : {&op.inputs, &op.outputs}) {
      for (int v : *variables) {
        if (v >= 0 && !executor->tensor(v)->allocated()) unallocated.insert(v);
      }
    }
  }
  return static_cast<int64_t>(unallocated.size());
}

}  // namespace

absl::StatusOr<MemoryEstimate> EstimateMemory(const Program& main, const PlanOptions& options,
                                              int64_t batch) {
  WEFT_ASSIGN_OR_RETURN(Plan plan, Plan::Build(main, options));
  WEFT_ASSIGN_OR_RETURN(const FeedLayouts layouts, FeedLayoutsOf(main));
  const int num_variables = static_cast<int>(plan.variables.size());
  std::vector<int> accessed = plan.losses;
  for (int v = 0; v < num_variables; ++v) {
    if (plan.variables[v].is_feed) accessed.push_back(v);
  }
  RewritePlan(*options.kernels, {accessed}, &plan);

  AddressDevice device, host;
  Scope scope;
  RandomState random;
  GroupOptions group_options;
  group_options.nranks = options.nranks;
  const std::unique_ptr<CommunicatorGroup> group = NewLocalGroup(group_options);
  PlanExecutorOptions executor_options;
  executor_options.plan = &plan;
  executor_options.scope = &scope;
  executor_options.device = &device;
  executor_options.host_memory = host.memory();
  executor_options.group = group.get();
  executor_options.random = &random;
  executor_options.accessed = accessed;
  WEFT_ASSIGN_OR_RETURN(const auto executor, PlanExecutor::Create(executor_options));
  const absl::Status too_large =
      absl::ResourceExhaustedError("out of memory for the values between steps");
  try {
    for (int v = 0; v < num_variables; ++v) {
      const Plan::Variable& variable = plan.variables[v];
      if (!variable.persistable && !variable.is_feed) continue;
      const absl::optional<TensorType> type = TypeOf(variable, layouts, batch);
      if (!type.has_value()) continue;
      // Inference relies on it.
      if (NumElements(type->dims) > kMaxElements) return too_large;
      executor->tensor(v)->Resize(type->dtype, type->dims);
    }
  } catch (const std::bad_alloc&) {
    return too_large;
  }
  WEFT_RETURN_IF_ERROR(executor->Bind());
  try {
    AllocateForBlocks(plan, layouts, batch, executor.get());
  } catch (const std::bad_alloc&) {
    return too_large;
  }
  MemoryEstimate estimate;
  estimate.num_unknown = CountUnallocated(plan, executor.get());
  estimate.memory = executor->memory();
  return estimate;
}

}  // namespace weft
