// How a plan is made of a program. For the files of Plan::Build alone: plan.cc has the ops,
// plan_blocks.cc those that run blocks, plan_schedule.cc the streams and instructions.
#ifndef WEFT_EXECUTOR_PLAN_BUILDER_H_
#define WEFT_EXECUTOR_PLAN_BUILDER_H_

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
#include "executor/control_kernels.h"
#include "executor/plan.h"
#include "executor/plan_checks.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

class PlanBuilder {
 public:
  PlanBuilder(const Program& program, const PlanOptions& options)
      : program_(program),
        options_(options),
        types_(program),
        slots_are_known_(program.num_layouts(), false) {}

  absl::StatusOr<Plan> Build();

 private:
  // What the program does, in its order: an op, a synchronization, the beginning or end of a block
  // that runs on a condition, or a branch to a block that stands further up.
  struct Step {
    enum class Kind { kOp, kSync, kBeginBranch, kEndBranch, kBranchBack };
    Kind kind = Kind::kSync;
    int index = -1;  // into plan_.ops_ or plan_.branches_
    StreamSync sync = StreamSync::kAllWaitForCompute;
    int ring_id = -1;       // of `sync`
    int first_branch = -1;  // of kBranchBack: into plan_.branches_, the one that the block follows
  };

  void AddVariables();

  absl::Status AddBlock(int block);

  absl::Status AddOp(const Op& op, const std::string& name);

  // A newer writer may have given the op an input that kernels do not look at.
  absl::Status CheckSlotsAreKnown(const Op& op, const OpSchema& schema);

  // --- Ops that move values ---------------------------------------------------------------------

  // Null where the op has, or needs, another kernel.
  absl::StatusOr<const ControlKernelFactory*> ControlKernelOf(const Op& op,
                                                              const std::string& name) const;

  static absl::Status CheckSlotsAreThere(const OpSchema& schema, const Plan::PlanOp& plan_op);

  // For kernels that add: the sum of two tensors.
  void SetAdd(Plan::PlanOp* plan_op) const;

  // --- Ops that run blocks (plan_blocks.cc) -----------------------------------------------------

  // What an op that runs a block does besides.
  void AddOwnOp(const std::string& name, ControlKernel control, std::vector<int> inputs,
                std::vector<int> outputs);

  // That a block declares, but for those of a gradient that it goes on with.
  std::vector<int> ArraysOf(int block) const;

  void AddClear(const std::string& name, std::vector<int> arrays);

  // What the op lists as Input and Out, the ops of its block name too.
  absl::Status AddBranch(const Op& op, const OpAttrs& attrs, const std::string& name);

  static Plan::Branch CondBranch(const OpAttrs& attrs, const std::string& name);

  // Where the condition holds, Input@GRAD is what the block makes in its own variables of these
  // names: the gradients of Input. Where it does not, nothing depended on Input: zeros, as where
  // the block has no such variable, whatever it writes to one around it.
  absl::Status AddBranchGrad(const Op& op, const OpAttrs& attrs, const std::string& name);

  // One that an op which goes back through a block gives: of an input, outside and in the block,
  // where the block declares it.
  struct Gradient {
    Symbol inside_name;
    int of, outside, inside;
  };

  absl::StatusOr<std::vector<Gradient>> GradientsOf(const Op& op, absl::string_view slot, int block,
                                                    const std::string& name) const;

  // What a loop keeps of each round for its gradient: the values of `found` when the round begins,
  // which the gradient sees as `found_then`, and of `made` when it ends.
  struct Rounds {
    std::vector<int> found, found_then, made;
    std::vector<Symbol> found_names;
  };

  // Of each variable that a gradient takes as StepScopes: what the gradient's block, and those in
  // it, read.
  absl::Status FindLoopGradients();

  // The ops of a block and of those within it; or not of those that loops run.
  template <typename Visit>
  void VisitOps(int block, bool skips_loops, Visit visit) const {
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

  absl::StatusOr<int> StepScopes(const Op& op, absl::Span<const Symbol> names,
                                 const std::string& name) const;

  // What the op lists as X and Out, the ops of its block name too.
  absl::Status AddLoop(const Op& op, const OpAttrs& attrs, const std::string& name);

  absl::StatusOr<Rounds> RoundsOf(const Op& loop, int block,
                                  const absl::flat_hash_set<Symbol>& reads,
                                  const std::string& name);

  // Goes back through the rounds of the loop. Gradients of what the loop has in X are added up over
  // the rounds; but those that are gradients of what it leaves in Out, too, go from round to round.
  absl::Status AddLoopGrad(const Op& op, const OpAttrs& attrs, const std::string& name);

  struct Link {
    int outside, inside;
  };

  // Where the block finds Out@GRAD: in variables of the names in original_output_grad. They are the
  // same variables where the op gives them on as X@GRAD, or the block does not change them; else
  // they are given anew to each round: returned, as outside and inside. What nothing has made is
  // zero.
  absl::StatusOr<std::vector<Link>> LinkGiven(const Op& op, const OpAttrs& attrs, int block,
                                              const std::vector<Gradient>& gradients,
                                              const std::string& name);

  // Where the block of a loop's gradient makes the gradient.
  int InsideOf(int block, const Gradient& gradient);

  // A variable that the program does not declare.
  int AddLocal(Symbol name, const Plan::Variable& like);

  void AddPlanOp(Plan::PlanOp plan_op);

  // Adds what an op does besides when its block begins and ends; may be null.
  struct BlockEnds {
    std::function<void()> begin, end;
  };

  absl::Status AddBranchTo(int block, const Op& op, Plan::Branch branch,
                           const BlockEnds& ends = {});

  // --- Ops and their variables
  // --------------------------------------------------------------------

  // Whoever wrote a number of ranks into an op, of whatever type, meant the ranks of the run.
  absl::Status CheckNumRanks(const Op& op, const std::string& name) const;

  int PlanVariable(VarId id) const;

  absl::StatusOr<int> Resolve(Symbol symbol, const std::string& op_name) const;

  absl::Status ResolveAll(absl::Span<const Symbol> symbols, const std::string& op_name,
                          std::vector<int>* variables) const;

  // A slot whose only argument stands for no variable is empty.
  int CountOfSlot(const Op& op, const OpLayout::Slot& slot) const;

  // Slots and variables of an op that has a kernel.
  absl::Status FillArguments(const Op& op, Plan::PlanOp* plan_op) const;

  absl::Status FillKernel(const Op& op, const OpSchema& schema, OpAttrs attrs,
                          Plan::PlanOp* plan_op);

  absl::Status FillCollective(const Op& op, const OpAttrs& attrs, Plan::PlanOp* plan_op);

  int RingIndex(RingKey ring);

  void NoteAccesses(const Plan::PlanOp& op);

  void AddLosses();

  // --- Streams and instructions (plan_schedule.cc) ----------------------------------------------

  void AddStreams();

  // -1 where the ring has no stream of its own.
  int StreamOfRing(int ring_id) const;

  void AddInstructions(const Step& step);

  int NextInstruction() const { return static_cast<int>(plan_.instructions_.size()); }

  void AddBranchInstruction(int branch);

  void AddRunOp(int index);

  // `ring`: its stream; -1 where it has none.
  void AddSync(StreamSync sync, int ring);

  void AddHostSync(int stream);

  // `to` wait for `from`; nothing where there is no such stream (-1).
  void AddWaits(int from, const std::vector<int>& to);

  const Program& program_;
  const PlanOptions& options_;
  TypeChecker types_;
  std::vector<bool> slots_are_known_;  // by layout
  int block_ = 0;                      // whose ops are being added
  // Variables that stand for another one, which a block gives on: by VarId.
  absl::flat_hash_map<uint32_t, int> plan_variable_;
  // Variables that blocks have besides those that they declare.
  absl::flat_hash_map<std::pair<int, Symbol>, int> locals_;
  absl::flat_hash_map<int, absl::flat_hash_set<Symbol>> reads_of_gradient_;  // by StepScopes
  absl::flat_hash_map<int, Rounds> rounds_;                                  // the same
  // By block that an op runs: the first branch to it, which its instructions follow.
  absl::flat_hash_map<int, int> branch_to_block_;
  std::vector<Step> steps_;
  std::vector<std::string> unsupported_;
  std::map<int, int> stream_of_ring_;
  Plan plan_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_BUILDER_H_
