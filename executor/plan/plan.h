// A program prepared to run: everything that can be decided before the first step.
#ifndef WEFT_EXECUTOR_PLAN_PLAN_H_
#define WEFT_EXECUTOR_PLAN_PLAN_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "executor/communicators/communicator.h"
#include "executor/plan/control_kernels.h"
#include "ops/kernel.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/server_ops.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

struct PlanOptions {
  // The source of kernels; required, and must outlive the plan. Every rank makes its kernels in its
  // own thread, concurrently.
  const KernelTable* kernels = nullptr;
  // Those of a program on two devices for ops on the host; null: `kernels`. Copies between the
  // devices are the accelerator's.
  const KernelTable* host_kernels = nullptr;
  // Number of ranks of the run; of its workers, if it has parameter servers.
  int nranks = 1;
  // The only rank that runs the program; none: several do. Ops that send and receive need it: each
  // rank has a program of its own then.
  absl::optional<int> rank = absl::nullopt;
  // Paddle's literal meaning of c_sync_calc_stream and c_sync_comm_stream: the host blocks until
  // that stream is idle. By default every other stream waits for it, and the host continues.
  bool strict_host_sync = false;
  // Reproduce known bugs of Paddle's CPU kernels: see KernelSpec.
  bool paddle_cpu_quirks = false;
  // Products in TF32: see KernelSpec.
  bool tf32 = false;
};

// A program as instructions on streams.
//
// Stream 0 is the compute stream. Every ring whose collectives do not set use_calc_stream has a
// communication stream; rings follow in ascending order. Only the program's ops order streams:
// c_wait_compute and c_wait_comm (one stream waits for one other), c_sync_calc_stream and
// c_sync_comm_stream (all wait for one), and ring set-up (all wait for the compute stream). A
// synchronization with a ring that has no communication stream orders nothing.
//
// A program on two devices (ops/schema/device_ops.h) has three more streams, after those of rings:
// cpu, d2h and h2d. The host waits for the condition of a block on the stream of its op.
//
// An op that runs a block becomes a branch: the host waits until its condition is computed, and
// skips the block if it does not hold. At the end of a loop's block it checks the condition again.
// The instructions of a block appear once, at the first op that runs it, even if several ops run
// it.
//
// A gradient block (forward_block_idx) sees the variables of its forward block as that left them.
// The gradient of a loop (while_grad) goes backward through the iterations. It sees the variables
// of the block as each iteration left them, and outer variables that the loop changes as they were
// when the iteration began. It does not see the earlier value of a variable that an op changes in
// place (increment), because the gradient reverts that change. For this, a loop keeps in its
// StepScopes exactly the variables that its gradient reads, for every iteration; the gradient frees
// them iteration by iteration. Loops without a gradient keep nothing.
//
// Arrays (LOD_TENSOR_ARRAY) are empty when the block that declares them begins.
//
// All ranks share a plan, which does not change after Build. The executor of each rank makes
// kernels, which keep buffers, from it.
struct Plan {
  static constexpr int kNoVariable = -1;

  // A variable of any block. Names are unique within a block, except for copies of values at the
  // start of an iteration, which come after the program's variables.
  struct Variable {
    std::string name;
    bool persistable = false;
    bool is_array = false;
    bool is_feed = false;                          // data (FindData)
    DeviceKind memory = DeviceKind::kAccelerator;  // the host's only with two devices
    absl::optional<TensorType> declared;
    bool is_written = false;  // by an op
    // The first op that reads it before any op has written it, as an index into reader_names;
    // else -1.
    int first_reader = -1;
  };

  // What an op does.
  struct KernelWork {
    const KernelFactory* factory = nullptr;
  };
  // Between two memories.
  struct CopyWork {
    const KernelFactory* factory = nullptr;
  };
  struct ControlWork {
    ControlKernel move;
    const KernelFactory* add = nullptr;  // of ControlContext::add, with kernel_spec
  };
  // Between workers and parameter servers, with kernel_spec.
  struct ServerWork {
    ServerOp op;
  };
  struct RingWork {
    int ring = -1;        // into rings
    CollectiveDesc desc;  // except count and element type, which come from the tensor
  };
  struct CollectiveWork : RingWork {};
  // The ring is that of the two ranks. An op that receives has no inputs, one that sends has no
  // outputs.
  struct MessageWork : RingWork {
    absl::optional<TensorType> received;  // none: it sends
  };
  // Another op does it (RewritePlan): no instruction runs the op.
  struct NoWork {};

  struct PlanOp {
    std::string name;  // "op 17 (mul)"
    std::string type;  // "mul"
    // Indices into variables, in the op's order; kNoVariable for an argument that is no variable.
    // For a collective: X and, if present, Cond (false: skip the collective); Out.
    std::vector<int> inputs;
    std::vector<int> outputs;
    // False: inputs are only assigned memory, and may have no value yet.
    bool reads_inputs = true;
    // One of its variables is SelectedRows. Otherwise all its inputs must be dense. For a
    // collective: X and Out are SelectedRows.
    bool has_rows = false;
    // On which it computes. A copy between two memories: from which it copies.
    DeviceKind device = DeviceKind::kAccelerator;
    KernelSpec kernel_spec;
    std::variant<NoWork, KernelWork, CopyWork, ControlWork, ServerWork, CollectiveWork, MessageWork>
        work;

    template <typename Work>
    bool Is() const {
      return std::holds_alternative<Work>(work);
    }
    // Of a collective or a message; otherwise null.
    const RingWork* ring_work() const;
    // Of the kernel that it runs, or with which it adds; otherwise null.
    const KernelFactory* factory() const;
    bool Does(ServerOp op) const { return Is<ServerWork>() && std::get<ServerWork>(work).op == op; }
  };

  // An op that runs the instructions of a block: at most once, or, for a loop, as long as its
  // condition holds.
  struct Branch {
    enum class Test : uint8_t {
      kTrue,            // the one condition is true
      kNoneEmpty,       // every condition is a tensor with elements
      kIterationsLeft,  // the one condition has iterations left
    };
    std::string name;             // name of its op
    std::vector<int> conditions;  // into variables
    absl::string_view slot;       // slot of the conditions
    Test test = Test::kTrue;
    bool is_loop = false;
    DeviceKind device = DeviceKind::kAccelerator;
    int stream = 0;  // on which the conditions are computed
    // Indices into instructions: begin and end of the block, and where to continue after it.
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
      kBranch,       // synchronizes; then enters or skips branch `index` by its condition
    };
    Kind kind;
    int stream;
    int index;

    friend bool operator==(const Instruction& a, const Instruction& b) {
      return a.kind == b.kind && a.stream == b.stream && a.index == b.index;
    }
  };

  // Errors name the op. Checked first:
  //   Unimplemented    ops without a kernel: one message with every such op type, how often and
  //                    where it occurs first, those with a SelectedRows variable separately; and
  //                    ops whose attributes or types have no kernel
  // then:
  //   InvalidArgument  attributes, undeclared variables, mismatched types of variables (inferred
  //                    from the declared ones), ops written for another number of ranks (attribute
  //                    nranks), variables in slots that the schema does not have, a variable in
  //                    the memory of the other device
  // Ignores the rank and the addresses in ring set-up ops: all ranks of a run share a program.
  // O(ops + variables), and the cost of the kernel factories. The plan does not need the program
  // afterwards.
  static absl::StatusOr<Plan> Build(const Program& program, const PlanOptions& options);

  // Searches the root block; kNoVariable if there is none.
  int FindVariable(absl::string_view name) const;

  std::vector<Variable> variables;
  absl::flat_hash_map<std::string, int> variable_of_name;  // of the root block
  std::vector<PlanOp> ops;
  // Names of ops that read a variable before any op writes it, in order.
  std::vector<std::string> reader_names;
  std::vector<Branch> branches;
  std::vector<Instruction> instructions;
  std::vector<RingKey> rings;
  bool on_two_devices = false;
  std::vector<std::string> stream_names;
  int num_events = 0;
  // The losses (ops/analysis/training/losses.h), in op order.
  std::vector<int> losses;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_PLAN_H_
