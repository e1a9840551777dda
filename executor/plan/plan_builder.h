// How a plan is built from a program. Only for the files of Plan::Build: plan.cc adds ops,
// plan_blocks.cc ops that run blocks, plan_schedule.cc streams and instructions; plan_checks.cc
// checks types and kernels first.
#ifndef WEFT_EXECUTOR_PLAN_PLAN_BUILDER_H_
#define WEFT_EXECUTOR_PLAN_PLAN_BUILDER_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/plan/control_kernels.h"
#include "executor/plan/plan.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/shared_writes.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

class PlanBuilder {
 public:
  PlanBuilder(const Program& program, const PlanOptions& options)
      : program_(program),
        options_(options),
        communications_(program),
        placement_(program),
        has_rows_(program.op_id_limit(), false),
        slots_are_known_(program.num_signatures(), false) {}

  absl::StatusOr<Plan> Build();

 private:
  // The program in order: an op, a synchronization, the beginning or end of a block that runs on a
  // condition, or a branch to an earlier block.
  struct Step {
    enum class Kind { kOp, kSync, kBeginBranch, kEndBranch, kBranchBack };
    Kind kind = Kind::kSync;
    int index = -1;  // into plan_.ops or plan_.branches
    StreamSync sync = StreamSync::kAllWaitForCompute;
    DeviceStream waiting, awaited;  // for `sync`; where all streams wait, only the second
    int first_branch = -1;  // for kBranchBack: the branch that the block follows, as an index
  };

  // Checks that the types of outputs follow from those of inputs, as far as they are known before a
  // step. Sets has_rows_, up to the op at which the check fails.
  absl::Status CheckTypes();

  // Unimplemented, listing all op types without a kernel, with the number of ops and the first
  // position of each.
  absl::Status CheckKernels() const;

  // InvalidArgument if an op accesses the memory of the other device.
  absl::Status CheckDevices() const;
  // InvalidArgument if ops that exchange values with servers are on both devices.
  absl::Status CheckServerOps() const;

  // For an op of the type on the device.
  const KernelTable& KernelsOn(DeviceKind device, absl::string_view type) const;

  void AddVariables();
  void ShareBuffers();

  absl::Status AddBlock(int block);

  absl::Status AddOp(const Op& op, const std::string& name);

  // After an op that has written memory that two variables share.
  absl::Status AddCopy(const Op& op, const SharedMemory& copy);

  static Step SyncStep(const Op& op, const OpAttrs& attrs, DeviceKind device);

  // A newer writer may have given the op an input that kernels do not read.
  absl::Status CheckSlotsAreKnown(const Op& op, const OpSchema& schema);

  // --- Ops that move values ---------------------------------------------------------------------

  // Null if the op has no such kernel, or needs another one.
  absl::StatusOr<const ControlKernelFactory*> ControlKernelOf(const Op& op,
                                                              const std::string& name) const;

  static absl::Status CheckRequiredInputs(const OpSchema& schema, const Plan::PlanOp& plan_op);
  static absl::Status CheckRequiredSlots(const OpSchema& schema, const Plan::PlanOp& plan_op);
  static absl::Status CheckServerSlots(const OpSchema& schema, const Plan::PlanOp& plan_op);

  // For kernels that add: the sum of two tensors.
  void SetControl(ControlKernel move, Plan::PlanOp* plan_op) const;

  // --- Ops that run blocks (plan_blocks.cc) -----------------------------------------------------

  // Adds work that an op with a block does outside of the block's ops.
  void AddOwnOp(const std::string& name, ControlKernel control, std::vector<int> inputs,
                std::vector<int> outputs);

  // The arrays that a block declares, except those of a gradient that the block continues.
  std::vector<int> ArraysOf(int block) const;

  void AddClear(const std::string& name, std::vector<int> arrays);

  static Plan::Branch CondBranch(const OpAttrs& attrs);

  // If the condition holds, Input@GRAD is what the block writes to its own variables of these
  // names: the gradients of Input. If it does not hold, nothing depended on Input: zeros. Zeros too
  // if the block has no such variable, even if it writes to an outer one of that name.
  absl::Status AddBranchGrad(const Op& op, const OpAttrs& attrs, const std::string& name);

  // A gradient that a gradient block returns: of an input, outside, and inside the block if the
  // block declares it.
  struct Gradient {
    Symbol inside_name;
    int of, outside, inside;
  };

  absl::StatusOr<std::vector<Gradient>> GradientsOf(const Op& op, absl::string_view slot, int block,
                                                    const std::string& name) const;

  // What a loop keeps of each iteration for its gradient: the values of `found` when the iteration
  // begins, which the gradient sees as `found_then`, and of `made` when it ends. In programs before
  // Paddle 2, `found` is empty: the gradient sees what the last iteration leaves.
  struct Iterations {
    std::vector<int> found, found_then, made;
    std::vector<Symbol> found_names;
  };

  // Finds, for each variable that a gradient takes as StepScopes, what the gradient's block and its
  // inner blocks read.
  absl::Status FindLoopGradients();

  // Visits the ops of a block and of its inner blocks, with or without the blocks that loops run.
  enum class LoopBlocks { kVisited, kSkipped };
  template <typename Visit>
  void VisitOps(int block, LoopBlocks loop_blocks, Visit visit) const {
    const bool skips_loops = loop_blocks == LoopBlocks::kSkipped;
    absl::flat_hash_set<int> seen = {block};
    std::vector<int> todo = {block};
    while (!todo.empty()) {
      const int current = todo.back();
      todo.pop_back();
      for (OpId id : program_.block(current).ops()) {
        const Op op = program_.op(id);
        visit(op);
        const OpSchema* schema = FindOpSchema(op.type());
        if (skips_loops && schema != nullptr && schema->Has(Trait::kLoop)) continue;
        for (int inner : op.SubBlocks()) {
          if (seen.insert(inner).second) todo.push_back(inner);
        }
      }
    }
  }

  // Outputs of the ops of a block and of its inner blocks.
  absl::flat_hash_set<Symbol> WrittenIn(int block) const;

  absl::StatusOr<int> StepScopes(absl::Span<const Symbol> names, const std::string& name) const;

  absl::Status AddLoop(const Op& op, const OpAttrs& attrs, const std::string& name);

  absl::StatusOr<Iterations> IterationsOf(const Op& loop, const OpAttrs& attrs,
                                          const absl::flat_hash_set<Symbol>& reads,
                                          const std::string& name);

  // Goes backward through the iterations of the loop. Gradients of the loop's X are summed over the
  // iterations. Gradients of variables that are also in Out pass from iteration to iteration
  // instead; in programs before Paddle 2, those of tensors end with the last iteration.
  absl::Status AddLoopGrad(const Op& op, const OpAttrs& attrs, const std::string& name);

  struct Link {
    int outside, inside;
  };

  // Links Out@GRAD to the variables named by original_output_grad, where the block reads it. Both
  // are the same variable if the op returns it as X@GRAD or, since Paddle 2, the loop carries the
  // tensor; or if the block does not change it.
  // Otherwise every iteration gets a fresh copy; returns these pairs of outer and inner variable.
  // Gradients that no op wrote are zero.
  absl::StatusOr<std::vector<Link>> LinkGiven(const Op& op, const OpAttrs& attrs, int block,
                                              const std::vector<Gradient>& gradients,
                                              const std::string& name);

  // --- recurrent (plan_recurrent.cc) -------------------------------------------------------------

  // The sequences and first states of a recurrent op; names in its block of a state before and
  // after a step.
  struct Recurrence {
    std::vector<int> sequences, initial_states;
    std::vector<std::string> ex_states, states;
  };
  absl::StatusOr<Recurrence> RecurrenceOf(const Op& op, const OpAttrs& attrs,
                                          const std::string& name) const;

  // Runs the block once for each step. In it, a sequence is its element of the step, and an output
  // that of the step; a state begins as it was after the step before.
  absl::Status AddRecurrent(const Op& op, const OpAttrs& attrs, const std::string& name);
  // Goes backward through the steps.
  absl::Status AddRecurrentGrad(const Op& op, const OpAttrs& attrs, const std::string& name);

  // A variable that the block declares.
  absl::StatusOr<int> InBlock(int block, absl::string_view variable, const std::string& name) const;
  // What ops of a gradient block call the gradient of a variable; a new one if none declares it.
  int GradientInBlock(int block, absl::string_view of, int like);
  int AddOwnArray(const std::string& name, int like);

  // The variable in which the block of a loop's gradient writes the gradient.
  int InsideOf(int block, const Gradient& gradient);

  // Adds a variable that the program does not declare.
  int AddLocal(Symbol name, const Plan::Variable& like);

  void AddPlanOp(Plan::PlanOp plan_op);

  // Work that an op adds at the beginning and end of its block; may be null.
  struct BlockEnds {
    std::function<void()> begin, end;
  };

  // The condition of `branch` is in slot branch.slot of the op, or already set. Ops of the block
  // name the other variables of the op too.
  absl::Status AddBranchTo(int block, const Op& op, Plan::Branch branch,
                           const BlockEnds& ends = {});

  // --- Ops and their variables ------------------------------------------------------------------

  // An attribute nranks, on an op of any type, means the ranks of the run.
  absl::Status CheckNumRanks(const Op& op, const std::string& name) const;

  int PlanVariable(VarId id) const;

  absl::StatusOr<int> Resolve(Symbol symbol, const std::string& op_name) const;

  absl::Status ResolveAll(absl::Span<const Symbol> symbols, const std::string& op_name,
                          std::vector<int>* variables) const;

  // A slot whose only argument is no variable counts as empty.
  int CountOfSlot(const Op& op, const OpSignature::Slot& slot) const;

  // Slots and variables of an op that has a kernel.
  absl::Status FillArguments(const Op& op, Plan::PlanOp* plan_op) const;

  // For the arguments that the op has been given.
  absl::Status FillKernel(const Op& op, const OpSchema& schema, OpAttrs attrs,
                          Plan::PlanOp* plan_op);

  // For an op that computes across ranks: adds an op that computes the sums of the rank's part, and
  // one that gathers those of all ranks, which become input Sums of `plan_op`. Returns its schema.
  absl::StatusOr<const OpSchema*> AddSumsOfRanks(const Op& op, const OpSchema& schema,
                                                 Plan::PlanOp* plan_op);

  // One collective for each variable.
  absl::Status AddCollectives(const Op& op, const CollectiveOp& collective, const OpAttrs& attrs,
                              const Plan::PlanOp& plan_op);
  // Of a ring that connects the two ranks alone.
  absl::Status AddMessage(const Op& op, const OpAttrs& attrs, Plan::PlanOp plan_op);

  int RingIndex(const RingKey& ring);

  // The ranks of the ring of a collective or of ring set-up; empty: all. InvalidArgument if the run
  // has not all of them, or if an earlier op says otherwise.
  absl::StatusOr<std::vector<int>> RanksOfRing(const Op& op);

  void RecordAccesses(const Plan::PlanOp& op);

  // --- Streams and instructions (plan_schedule.cc) ----------------------------------------------

  void AddStreams();

  // -1 if there is no such stream.
  int StreamOf(DeviceStream stream) const;

  void AddInstructions(const Step& step);

  int NextInstruction() const { return static_cast<int>(plan_.instructions.size()); }

  void AddBranchInstruction(int branch);

  void AddRunOp(int index);

  void AddSync(const Step& step);

  void AddHostSync(int stream);

  // Makes `to` wait for `from`; does nothing if one of them is -1.
  void AddWaits(int from, const std::vector<int>& to);

  const Program& program_;
  const PlanOptions& options_;
  Communications communications_;
  const DevicePlacement placement_;
  SharedWrites shared_;
  // By OpId: a variable of the op is SelectedRows at run time, as declared or inferred.
  std::vector<bool> has_rows_;
  std::vector<bool> slots_are_known_;             // by op signature
  int block_ = 0;                                 // the block whose ops are being added
  DeviceKind device_ = DeviceKind::kAccelerator;  // of the op that is being added
  // Variables that a block forwards to another one, by VarId.
  absl::flat_hash_map<uint32_t, int> plan_variable_;
  // Variables of blocks that the program does not declare.
  absl::flat_hash_map<std::pair<int, Symbol>, int> locals_;
  absl::flat_hash_map<int, absl::flat_hash_set<Symbol>> reads_of_gradient_;  // by StepScopes
  absl::flat_hash_map<int, Iterations> iterations_;                          // the same
  // By block: the first branch to it, which its instructions follow.
  absl::flat_hash_map<int, int> branch_to_block_;
  std::vector<Step> steps_;
  std::vector<std::string> unsupported_;
  std::map<int, int> stream_of_ring_;
  int first_device_stream_ = -1;                       // that of the host; -1: there is one device
  std::map<int64_t, std::vector<int>> ranks_of_ring_;  // by ring
  Plan plan_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_PLAN_BUILDER_H_
