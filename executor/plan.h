// A program made ready to run: everything that can be decided before the first step.
#ifndef WEFT_EXECUTOR_PLAN_H_
#define WEFT_EXECUTOR_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "executor/communicator.h"
#include "executor/control_kernels.h"
#include "ops/kernel.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

struct PlanOptions {
  // Where kernels come from; must be given, and outlive the plan. Ranks make theirs at the same
  // time, each in its own thread.
  const KernelTable* kernels = nullptr;
  // Ranks of the run.
  int nranks = 1;
  // Paddle's literal meaning of c_sync_calc_stream and c_sync_comm_stream: the host blocks until
  // that stream is idle. Otherwise every other stream waits for it, and the host goes on.
  bool strict_host_sync = false;
  // What kernels of the CPU give where Paddle's deviate: see KernelSpec.
  bool paddle_cpu_quirks = false;
};

// A program as instructions on streams.
//
// Stream 0 computes. Every ring whose collectives do not ask for the compute stream
// (use_calc_stream) has a stream of its own; rings follow in order of their numbers. Nothing orders
// streams but what the program says: c_wait_compute and c_wait_comm (one stream waits for one
// other), c_sync_calc_stream and c_sync_comm_stream (all wait for one), and ring set-up (all wait
// for the compute stream). A synchronization with a ring that has no stream of its own orders
// nothing.
//
// An op that runs a block becomes a branch: the host waits until its condition is computed, and
// goes on behind the block where it does not hold. At the end of the block of a loop it looks
// again. The instructions of a block are there once, where the first op that runs it stands,
// whatever the number of ops that run it.
//
// A block of gradients (forward_block_idx) sees the variables of its forward block, as that has
// left them. The gradient of a loop (while_grad) goes back through its rounds and sees them as each
// round has left them, and what the loop changes of its surroundings as each round has found it;
// but not what an op of the loop changes in place (increment), which the gradient changes back. For
// that a loop keeps of every round, in its StepScopes, what its gradient names, and only that; the
// gradient frees it round by round. Loops without a gradient keep nothing.
//
// Arrays (LOD_TENSOR_ARRAY) hold no elements when the block that declares them begins.
//
// All ranks share a plan; it does not change. Kernels, which keep buffers, are made from it by the
// executor of each rank.
class Plan {
 public:
  static constexpr int kNoVariable = -1;

  // A variable, of any block; names are unique within a block, but for those that hold what a round
  // of a loop has found, which come after the program's.
  struct Variable {
    std::string name;
    bool persistable = false;
    bool is_array = false;
    // Data of the step: declared with need_check_feed, or written by a feed op.
    bool is_feed = false;
    absl::optional<TensorType> declared;
    bool is_written = false;  // by an op
    // The first op that reads it where none has written it before, into reader_names(); else -1.
    int first_reader = -1;
  };

  // An op that does work: a kernel, or a collective.
  struct PlanOp {
    std::string name;  // "op 17 (mul)"
    std::string type;  // "mul"
    // In the op's order, into variables(); kNoVariable where an argument stands for none. Of a
    // collective: X and, where there is one, Cond (false: nothing is done); Out.
    std::vector<int> inputs;
    std::vector<int> outputs;
    // False: inputs are given a place, and may hold nothing yet.
    bool reads_inputs = true;
    // A variable of it is SelectedRows. Otherwise all that it reads must be dense. Of a collective:
    // X and Out are.
    bool has_rows = false;
    // Of an op that moves values: its kernel; the other one, if there is one, is what adds.
    ControlKernel control;
    // Of an op with a kernel: what makes it, and from what. Null for a collective.
    const KernelFactory* make_kernel = nullptr;
    KernelSpec kernel_spec;

    int ring = -1;        // into rings(); -1: no collective
    CollectiveDesc desc;  // but for count and element type, which are those of the tensor
  };

  // An op that runs the instructions of a block: once or not at all, or, a loop, as long as its
  // condition holds.
  struct Branch {
    enum class Test : uint8_t {
      kTrue,       // the one condition is true
      kNoneEmpty,  // no condition is a tensor without elements
      kRounds,     // the one condition has rounds left
    };
    std::string name;             // of its op
    std::vector<int> conditions;  // into variables()
    absl::string_view slot;       // of the conditions
    Test test = Test::kTrue;
    bool is_loop = false;
    // Into instructions(): where the block begins and ends, and where to go on behind it.
    int begin = 0;
    int end = 0;
    int next = 0;
  };

  struct Instruction {
    enum class Kind : uint8_t {
      kRunOp,        // op `index`
      kRecord,       // event `index`
      kWait,         // event `index`, which was recorded before
      kSynchronize,  // the host blocks until the stream is idle
      kBranch,       // the same; then enters or passes by branch `index`, as its condition says
    };
    Kind kind;
    int stream;
    int index;

    friend bool operator==(const Instruction& a, const Instruction& b) {
      return a.kind == b.kind && a.stream == b.stream && a.index == b.index;
    }
  };

  // Errors name the op. Before anything else is looked at:
  //   Unimplemented    ops without a kernel: one message with every such op type, how often and
  //                    where it occurs first, those with a variable that is SelectedRows apart; and
  //                    ops whose attributes or types have none
  // then:
  //   InvalidArgument  attributes, variables that are not declared, types of variables that do not
  //                    fit (inferred from the declared ones), ops written for another number of
  //                    ranks (attribute nranks), variables in slots that the schema does not have
  // The rank and the addresses in ring set-up ops are not looked at: all ranks of a run share a
  // program. O(ops + variables), and what the kernels' factories do. The program may go afterwards.
  static absl::StatusOr<Plan> Build(const Program& program, const PlanOptions& options);

  const std::vector<Variable>& variables() const { return variables_; }
  // Of the root block; kNoVariable: none.
  int FindVariable(absl::string_view name) const;
  const std::vector<PlanOp>& ops() const { return ops_; }
  // Ops that read a variable before any op writes it, in order.
  const std::vector<std::string>& reader_names() const { return reader_names_; }
  const std::vector<Branch>& branches() const { return branches_; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  const std::vector<RingKey>& rings() const { return rings_; }
  const std::vector<std::string>& stream_names() const { return stream_names_; }
  int num_events() const { return num_events_; }
  // The losses (executor/losses.h), in op order.
  const std::vector<int>& losses() const { return losses_; }

 private:
  friend class PlanBuilder;

  std::vector<Variable> variables_;
  absl::flat_hash_map<std::string, int> variable_of_name_;
  std::vector<PlanOp> ops_;
  std::vector<std::string> reader_names_;
  std::vector<Branch> branches_;
  std::vector<Instruction> instructions_;
  std::vector<RingKey> rings_;
  std::vector<std::string> stream_names_;
  int num_events_ = 0;
  std::vector<int> losses_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_H_
