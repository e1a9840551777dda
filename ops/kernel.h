// What a kernel is: a function bound to one op of a program, called once per step.
#ifndef WEFT_OPS_KERNEL_H_
#define WEFT_OPS_KERNEL_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "ops/tensor.h"

namespace weft {

// What an op looks like when its kernel is made: once, when the plan is built.
struct KernelSpec {
  const OpSchema* schema = nullptr;
  OpAttrs attrs;
  // Gives what Paddle 2.6's CPU kernels give where they deviate from what the op is defined to
  // compute (docs/ops.md lists where that is), instead of the right result.
  bool paddle_cpu_quirks = false;

  // Where it is not null, a kernel that is made tells here the element types that it takes.
  std::vector<DType>* element_types = nullptr;

  // Where each slot's variables stand among the inputs, or outputs, that the kernel is called with.
  // A slot that is missing or empty, or whose only argument stands for no variable, has count 0.
  struct Slot {
    int first = 0;
    int count = 0;
  };
  absl::flat_hash_map<std::string, Slot> inputs;
  absl::flat_hash_map<std::string, Slot> outputs;

  // The index of the (single) variable of a slot; -1 where the slot is missing or empty.
  int Input(absl::string_view slot) const;
  int Output(absl::string_view slot) const;
};

// Random draws of one rank: what an op with seed 0 takes its numbers from.
struct RandomState {
  // `initializers` gives what Paddle's CPU generator gives after paddle.seed(seed): mt19937_64
  // seeded by std::seed_seq{seed}, of which the low 32 bits count. `dropout` differs by rank.
  static RandomState Seeded(uint64_t seed, int rank);

  std::mt19937_64 initializers;  // the same on every rank
  std::mt19937_64 dropout;       // of this rank
};

// What a kernel is called with. Tensors are in the order of the op's arguments; an input and an
// output may be the same tensor (an op that works in place). Null where an argument stands for no
// variable. A kernel gives each output its type and memory (Tensor::Resize) before writing.
class KernelContext {
 public:
  absl::Span<const Tensor* const> inputs;
  absl::Span<Tensor* const> outputs;
  RandomState* random = nullptr;
  // The native handle of the stream that the kernel enqueues its work on (executor/stream.h): a
  // cudaStream_t. Null on the host.
  void* stream = nullptr;

  // nullptr for index -1 (KernelSpec::Input of a slot that is empty).
  const Tensor* in(int i) const { return i < 0 ? nullptr : inputs[i]; }
  Tensor* out(int i) const { return i < 0 ? nullptr : outputs[i]; }
};

// Runs one step of the op. Keeps buffers and primitives from call to call: neither a kernel nor its
// copies may run twice at a time, so every rank makes its own. Types of the inputs were checked by
// inference when the plan was built; values are checked here (ids in range, ...). Errors name the
// slot and the value; the caller adds the op.
using Kernel = std::function<absl::Status(const KernelContext&)>;
// Makes the kernel of one op: attributes are read here, never in a step. Unimplemented, with the
// reason, for a combination of attributes or types that has no kernel.
using KernelFactory = std::function<absl::StatusOr<Kernel>(const KernelSpec&)>;

// The kernels of one device, by op type. Those of Add get dense tensors only, and make dense ones;
// ops with a tensor that is_rows() among inputs and outputs have kernels of their own, if any,
// which check what of their inputs is rows.
class KernelTable {
 public:
  // Both die if the type is there already.
  void Add(std::string op_type, KernelFactory factory);
  void AddForRows(std::string op_type, KernelFactory factory);
  // nullptr: none.
  const KernelFactory* Find(absl::string_view op_type) const;
  const KernelFactory* FindForRows(absl::string_view op_type) const;
  std::vector<std::string> op_types() const;  // of Add, sorted

 private:
  using Factories = absl::flat_hash_map<std::string, KernelFactory>;
  static void AddTo(Factories* factories, std::string op_type, KernelFactory factory);
  static const KernelFactory* FindIn(const Factories& factories, absl::string_view op_type);

  Factories dense_;
  Factories for_rows_;
};

// Kernels for host memory (//ops/cpu:cpu_kernels), and for that of a CUDA device
// (//ops/gpu:gpu_kernels; empty in a build without CUDA). Built once, on first use; thread-safe.
const KernelTable& CpuKernels();
const KernelTable& GpuKernels();

}  // namespace weft

#endif  // WEFT_OPS_KERNEL_H_
