// What the steps of a plan on one rank have in common.
#ifndef WEFT_EXECUTOR_STEP_STEP_RESOURCES_H_
#define WEFT_EXECUTOR_STEP_STEP_RESOURCES_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "executor/communicators/communicator.h"
#include "executor/plan/plan.h"
#include "executor/plan/scope.h"
#include "ops/device_fault.h"
#include "ops/kernel.h"
#include "ops/memory.h"
#include "ops/schema/device_ops.h"
#include "ops/tensor.h"

namespace weft {

// Accesses of variables that the types depend on. One for all steps of a plan.
struct PlanAccesses {
  explicit PlanAccesses(const Plan& plan);

  // By variable.
  std::vector<bool> is_entry;  // its value at the begin of a step matters
  // Ops of blocks, or ops that move values instead of computing them, use it: it may change its
  // type, share its buffer, or be written or not.
  std::vector<bool> is_loose;
  // By instruction: it belongs to a block.
  std::vector<bool> in_block;
};

// What a rank runs a plan with. Everything outlives the steps.
struct StepResources {
  const Plan* plan = nullptr;
  const PlanAccesses* accesses = nullptr;
  std::vector<Kernel> kernels;               // by op of the plan; empty without a kernel
  std::vector<Value*> values;                // by variable of the plan
  std::vector<Tensor*> tensors;              // of the values
  std::vector<Communicator*> communicators;  // by ring of the plan
  std::vector<void*> native_streams;         // by stream of the plan
  std::vector<bool> is_accessed;             // by variable: between steps
  bool joins_ops = false;                    // into chains (pointwise_chains.h)
  RandomState* random = nullptr;
  const std::string* place = nullptr;                     // KernelContext::place
  std::shared_ptr<DeviceFault> fault;                     // of this step, on any stream
  std::array<Memory*, kNumDeviceKinds> memories{};        // by device; one device: the first
  std::array<Memory*, kNumDeviceKinds> arena_memories{};  // by device: of the arenas

  Memory* MemoryOf(DeviceKind device) const { return memories[static_cast<int>(device)]; }
  // Of a call of an op of the plan on a stream.
  KernelContext ContextOf(int op, absl::Span<const Tensor* const> inputs,
                          absl::Span<Tensor* const> outputs, int stream) const;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_STEP_RESOURCES_H_
