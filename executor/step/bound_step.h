// A step of a plan on one rank, bound to the types of the values with which it begins.
#ifndef WEFT_EXECUTOR_STEP_BOUND_STEP_H_
#define WEFT_EXECUTOR_STEP_BOUND_STEP_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "executor/plan/plan.h"
#include "executor/step/pointwise_chains.h"
#include "executor/step/step_calls.h"
#include "executor/step/step_resources.h"
#include "executor/step/step_types.h"
#include "ops/bound_kernel.h"
#include "ops/schema/device_ops.h"
#include "ops/tensor.h"

namespace weft {

// The memory that all steps of a rank share, one step at a time.
struct Arena {
  std::shared_ptr<void> memory;
  int64_t bytes = 0;
};
// By device.
using StepArenas = std::array<Arena, kNumDeviceKinds>;

// The ops of a plan, bound to the types that its entries (PlanAccesses) have when it is made.
//
// A variable whose value nobody needs between steps, and which has one type in it, lies in the
// arena of its device. Variables share memory where they do not live at the same time (LivesOfOps,
// on the compute stream of the device), where an op may work in place, and where one is a view of
// the other: the op that would copy it is left out. Persistable and accessed variables, entries,
// and variables of blocks and control ops have their own memory. So do fused buffers on one device,
// where collectives register them; on two, they lie in arenas with their slices.
class BoundStep {
 public:
  explicit BoundStep(const StepResources& resources);

  // Whether the entries have the types of this step now.
  bool Fits() const;

  // Gives variables the types and memory of this step, and prepares kernels. Call it before the
  // first step, and again after another BoundStep has used the tensors.
  void Enter(StepArenas* arenas);
  // Takes the arenas from the variables.
  void Leave();

  // Gives variables that were accessed between steps types and memory again that nobody shares.
  // Entries keep their values. Before every step.
  void OwnValues();
  // Sets to zero the fused buffers that got memory since the last call.
  absl::Status ClearNewBuffers();

  // Where the values lie that may move between steps. Those of arenas stay.
  void AddAddresses(std::vector<const void*>* addresses) const;

  // The instructions of the plan, without the ops that are left out; and its branches, whose
  // positions are those of calls.
  std::vector<StepCall>& calls() { return calls_; }
  const std::vector<StepCall>& calls() const { return calls_; }
  const std::vector<Plan::Branch>& branches() const { return branches_; }

  // The arena of a device; and what lives at once in it at most.
  int64_t arena_bytes(DeviceKind device) const { return arena_bytes_[static_cast<int>(device)]; }
  int64_t live_bytes(DeviceKind device) const { return live_bytes_[static_cast<int>(device)]; }

 private:
  // A part of an arena.
  struct Place {
    Tensor* tensor;
    TensorType type;
    DeviceKind device;
    int64_t offset;
    int64_t offset_in_value = 0;  // of a slice of a fused buffer
  };
  // An entry, and its type when the step begins; none: it holds no dense tensor.
  struct Entry {
    Tensor* tensor;
    absl::optional<TensorType> type;
    bool is_written;
  };

  // A fused buffer with memory of its own.
  struct Buffer {
    std::vector<Tensor*> tensors;  // the buffer and its slices
    std::vector<TensorType> types;
    std::vector<int64_t> offsets;  // in bytes
    bool is_new = false;
  };

  // What the calls are made of.
  struct Parts {
    std::vector<BoundKernel> kernels;   // by op of the plan
    std::vector<Tensor*> input_copies;  // by op of the plan: CollectiveOpCall::input_copy
    std::vector<bool> is_removed;       // by op of the plan: it does not run
    std::vector<PointwiseChain> chains;
  };

  void FindEntries();
  void PlaceValues(Parts* parts);
  std::vector<bool> FindBuffers(const std::vector<bool>& in_arena);
  void MakeCalls(Parts parts);
  StepCall MakeCall(const Plan::Instruction& instruction, Parts* parts) const;
  OpCall ArgumentsOf(int op) const;
  template <typename Call>
  Call OnRing(const Plan::RingWork& work, int stream, int op) const;
  bool IsChain(const PointwiseChain& chain, const Parts& parts) const;
  int EndOfGroup(int begin) const;
  void DivideIntoTasks();
  void PrepareKernels();

  const StepResources& resources_;
  const Plan& plan_;
  StepTypes types_;
  std::deque<Tensor> input_copies_;  // of collectives
  std::vector<Entry> entries_;
  std::vector<Place> places_;
  // Variables of known type with their own memory, which are no entries; those of buffers_ aside.
  std::vector<std::pair<Tensor*, TensorType>> owned_;
  std::vector<Buffer> buffers_;
  std::vector<StepCall> calls_;
  std::vector<Plan::Branch> branches_;
  std::array<int64_t, kNumDeviceKinds> arena_bytes_{}, live_bytes_{};
  bool is_prepared_ = false;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_STEP_BOUND_STEP_H_
