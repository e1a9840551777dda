// A kernel: a function bound to one op of a program, called once per step.
#ifndef WEFT_OPS_KERNEL_H_
#define WEFT_OPS_KERNEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/device_fault.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_columns.h"
#include "ops/schema/op_schema.h"
#include "ops/tensor.h"

namespace weft {

// What a kernel does to its result before it writes it.
struct PostOp {
  PostOpKind kind;
  // Of kBias and kAdd: what is added, by its position among the inputs of a call. A bias is a
  // vector; its numbers are those of the channels.
  int input = -1;
};

// An op, as the factory of its kernel sees it: once, when the plan is built.
struct KernelSpec {
  const OpSchema* schema = nullptr;
  OpAttrs attrs;
  // Reproduces the deviations of Paddle 2.6's CPU kernels from the definitions of the ops
  // (docs/reference/ops.md lists them), instead of the right results.
  bool paddle_cpu_quirks = false;
  // On a GPU, products of fp32 round their operands to TF32: 10 bits after the first.
  bool tf32 = false;

  // In their order. Their operands belong to no slot.
  std::vector<PostOp> post_ops;

  // Of an update: its parameters begin as zeros, whatever their variables hold, and it computes in
  // fp32. ParamOut may be in half precision: then it is rounded.
  bool starts_from_zero = false;

  // If not null, the factory writes the element types that the kernel supports here.
  std::vector<DType>* element_types = nullptr;

  // The positions of each slot's variables among the inputs, or outputs, of a call of the kernel. A
  // slot that is missing or empty, or whose only argument has no variable, has count 0.
  struct Slot {
    int first = 0;
    int count = 0;
  };
  absl::flat_hash_map<std::string, Slot> inputs;
  absl::flat_hash_map<std::string, Slot> outputs;

  // Of an op with Trait::kSideEffect, for its messages: the variables by position.
  std::vector<std::string> input_names;

  // The index of the (single) variable of a slot; -1 for a missing or empty slot.
  int Input(absl::string_view slot) const;
  int Output(absl::string_view slot) const;
};

// Which numbers of Philox (ops/formulas/philox.h) dropout uses. Each op that draws takes the next
// sequence; the device on which it runs computes the numbers.
struct DropoutState {
  static DropoutState OfStep(uint64_t seed, int rank, int64_t step);

  uint64_t key = 0;
  uint64_t next_sequence = 0;
};

// Generators of one rank, from which ops with seed 0 draw.
struct RandomState {
  // `initializers` draws the numbers of Paddle's CPU generator after paddle.seed(seed): mt19937_64
  // seeded by std::seed_seq{seed}, which uses the low 32 bits. The others differ by rank.
  static RandomState Seeded(uint64_t seed, int rank);

  std::mt19937_64 initializers;  // replicated
  std::mt19937_64 noise;         // rank-local
  DropoutState dropout;          // rank-local
};

// The arguments of a call. Tensors are in the order of the op's arguments, null for an argument
// without a variable; an input and an output may be the same tensor (an op that works in place). A
// kernel gives each output its type and memory (Tensor::Resize) before writing.
struct KernelContext {
  absl::Span<const Tensor* const> inputs;
  absl::Span<Tensor* const> outputs;
  RandomState* random = nullptr;
  // The native handle of the compute stream (executor/streams/stream.h): a cudaStream_t. Null on
  // the host.
  void* stream = nullptr;
  // For messages: "step 3, rank 1". Null outside a run.
  const std::string* place = nullptr;
  // For kernels of a device, not null: what they find wrong in a step, and the op that they name
  // there, by its index in the plan.
  DeviceFault* fault = nullptr;
  int op = -1;
};

// Runs one step of the op. Errors have the slot and the value; the caller adds the op.
using KernelStep = std::function<absl::Status(const KernelContext&)>;

class KernelTypes;

// The kernel of one op: how to run a step, and what the caller has to know about it. BoundKernel
// (ops/bound_kernel.h) runs it. Keeps buffers and primitives from step to step: a kernel and its
// copies must not run concurrently, so every rank makes a kernel.
struct Kernel {
  Kernel() = default;
  // A kernel without `types`, which runs `step` on arguments of any types.
  template <typename Step,
            typename = std::enable_if_t<std::is_invocable_v<Step&, const KernelContext&>>>
  Kernel(Step step)  // NOLINT: a function is a kernel
      : prepare([shared = std::make_shared<Step>(std::move(step))](const KernelContext&) {
          return KernelStep([shared](const KernelContext& ctx) { return (*shared)(ctx); });
        }) {}

  // Infers the types of outputs. The caller gives outputs their types and memory before a step, as
  // far as the types are known. Null: the step checks its inputs and does all this itself.
  std::shared_ptr<const KernelTypes> types;

  // Makes the step for arguments of the types that the context's arguments have. The step checks
  // values alone (ids in range, ...).
  std::function<absl::StatusOr<KernelStep>(const KernelContext&)> prepare;

  // The rest applies to kernels with `types`. Numbers are positions among outputs and inputs.

  // The step may run with an output that is an input: any, or these pairs (output, input). The
  // caller copies other such inputs first.
  bool in_place = false;
  std::vector<std::pair<int, int>> in_place_pairs;
  // The step takes fp16 and bf16. Otherwise the caller converts them to fp32, and results back.
  bool keeps_halves = false;
  // Inputs that the step takes in half precision, if no other input has it.
  std::vector<int> half_inputs;
  // (output, input): if both have as many elements, the output is the input, perhaps under other
  // dimensions. The two may share their memory; then the step leaves the output alone. It may be
  // left out if that holds for all outputs with elements.
  std::vector<std::pair<int, int>> views;
  // Inputs whose elements the step never reads: it needs their types, or nothing.
  std::vector<int> unread;
  // Element i of an output depends on the elements i of the inputs alone, if all arguments have
  // equally many elements. The step then also runs on parts of them that begin at multiples of
  // kPointwiseStep elements.
  bool is_pointwise = false;
  // Of an update: slots may hold the variables of several ops with these attributes, one after the
  // other, if no op uses what another one writes. The step does what the ops do.
  bool merges_updates = false;
  // On a device: the step waits for its stream or takes numbers from the host, so that work that
  // its stream has recorded (GraphRecorder of executor/streams/stream.h) cannot stand for it.
  bool uses_host = false;
  // Of KernelSpec, what the step carries out. A factory that does not know of it carries out
  // nothing.
  size_t num_post_ops = 0;
  bool starts_from_zero = false;
};

inline constexpr int64_t kPointwiseStep = 64;

// Makes the kernel of one op: it reads attributes, which a step never does. Unimplemented, with the
// reason, for a combination of attributes or types without a kernel.
using KernelFactory = std::function<absl::StatusOr<Kernel>(const KernelSpec&)>;

// The kernels of one device, by op type. Those of Add read and write dense tensors. Those of
// AddForRows run ops with a tensor that is_rows() among inputs and outputs, and check which.
class KernelTable {
 public:
  // All abort if the table already has a kernel of the type.
  void Add(std::string op_type, KernelFactory factory);
  // Also the kernel of the gradient op, `op_type`_grad.
  void Add(const std::string& op_type, KernelFactory factory, KernelFactory grad_factory);
  void AddForRows(std::string op_type, KernelFactory factory);
  // nullptr for a type without a kernel.
  const KernelFactory* Find(absl::string_view op_type) const;
  const KernelFactory* FindForRows(absl::string_view op_type) const;
  std::vector<std::string> op_types() const;           // of Add, sorted
  std::vector<std::string> op_types_for_rows() const;  // of AddForRows, sorted

 private:
  absl::flat_hash_map<std::string, KernelFactory> dense_, for_rows_;
};

// Kernels for host memory (//ops/cpu:cpu_kernels), and for the memory of a CUDA device
// (//ops/gpu:gpu_kernels; empty in a build without CUDA). Made on first use; thread-safe.
const KernelTable& CpuKernels();
const KernelTable& GpuKernels();

}  // namespace weft

#endif  // WEFT_OPS_KERNEL_H_
