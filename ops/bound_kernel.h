// A kernel on its arguments.
#ifndef WEFT_OPS_BOUND_KERNEL_H_
#define WEFT_OPS_BOUND_KERNEL_H_

#include <deque>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "ops/kernel.h"
#include "ops/kernel_types.h"
#include "ops/tensor.h"

namespace weft {

// Keeps a kernel's promises to its step: copies of inputs that the step would overwrite, half
// precision as fp32, outputs of the right types. It decides about all this once for arguments of
// given types, not in every step.
//
// A caller who knows the types in advance binds the kernel once:
//   Bind, give outputs and temporaries their types and memory, Prepare, then RunBound every step.
// For others, Run does this whenever the types change.
class BoundKernel {
 public:
  using Types = KernelTypes::Types;

  BoundKernel() = default;
  explicit BoundKernel(Kernel kernel) : kernel_(std::move(kernel)) {}
  // Steps refer to the temporaries.
  BoundKernel(BoundKernel&&) = default;
  BoundKernel& operator=(BoundKernel&&) = default;

  const Kernel& kernel() const { return kernel_; }

  // One step, on arguments of any types. Errors are those of inference (InvalidArgument), of the
  // kernel, and InvalidArgument, with the slot, if the kernel does not take the type of an
  // argument. Throws std::bad_alloc.
  absl::Status Run(const KernelContext& ctx);

  // Fixes the arguments, and their types. `inputs`: none for an argument without a variable.
  absl::Status Bind(const KernelContext& ctx, Types inputs);
  // After Bind: none, or with unknown dimensions, if they depend on values.
  const Types& output_types() const { return output_types_; }

  // Whether the step ignores the elements of the input.
  bool IsUnread(size_t input) const;
  // After Bind: whether the output may have the memory of the input, which no other input shares.
  bool CanShare(int output, int input) const;

  // After Prepare, of a pointwise kernel without temporaries, or for Run and RunBound with those of
  // a block, all of whose arguments have equally many elements: runs the step on `count` elements
  // of them, from `begin` on, which is a multiple of kPointwiseStep. Calls with different lanes, of
  // which there are as many as KernelThreads in Prepare, may run at the same time if there are no
  // temporaries: steps of pointwise kernels keep nothing from one call to the next.
  absl::Status RunPart(int64_t begin, int64_t count, int lane = 0);

  // A tensor that only this kernel uses, during its step.
  struct Temporary {
    Tensor tensor;
    absl::optional<TensorType> type;  // none: depends on values
  };
  // After Bind.
  std::deque<Temporary>& temporaries() { return temporaries_; }
  bool has_temporaries() const { return !temporaries_.empty(); }

  absl::Status Prepare();
  absl::Status RunBound();

 private:
  // Copies a tensor, or rounds fp32 to half precision if that is `type`, or converts half precision
  // to fp32.
  struct Transfer {
    enum class Kind { kCopy, kWiden, kRound };
    Kind kind;
    const Tensor* from;
    Tensor* to;
    DType type;  // kRound

    absl::Status Run(void* stream) const;
  };

  bool IsBoundTo(const KernelContext& ctx) const;
  // The half precision that an input has, if it must be converted.
  absl::optional<DType> ConvertedHalf() const;
  bool WorksInPlace(size_t output, size_t input) const;
  void CopyOverwrittenInputs();
  absl::Status ConvertHalves(DType half);
  // The elements of a block, in which a pointwise step with temporaries runs: converted values stay
  // in the cache. 0: it runs at once.
  int64_t BlockSize() const;
  Dims DimsOfTemporary(const Dims& dims) const { return block_ == 0 ? dims : Dims{block_}; }
  // Points `part` to elements of `whole`; of a temporary, to the first ones.
  void PointTo(const Tensor& whole, int64_t begin, int64_t count, Tensor* part) const;
  absl::Status RunOnPart(const Transfer& transfer, int64_t begin, int64_t count) const;
  KernelContext PartContext(int64_t begin, int64_t count, int lane);
  Tensor* AddTemporary(Memory* memory, absl::optional<TensorType> type);
  KernelContext StepContext() const;
  template <typename Step>
  absl::Status Try(const Step& step, const KernelContext& ctx) const;

  Kernel kernel_;
  KernelStep step_;
  // Of the caller.
  std::vector<const Tensor*> caller_inputs_;
  std::vector<Tensor*> caller_outputs_;
  Types input_types_, output_types_;
  // Of the step.
  std::vector<const Tensor*> inputs_;
  std::vector<Tensor*> outputs_;
  Types step_output_types_;
  RandomState* random_ = nullptr;
  void* stream_ = nullptr;
  const std::string* place_ = nullptr;
  DeviceFault* fault_ = nullptr;
  int op_ = -1;
  std::deque<Temporary> temporaries_;
  std::vector<Transfer> before_, after_;
  int64_t block_ = 0, size_ = 0;  // elements of a block, of arguments
  // Of RunPart: parts of the arguments.
  struct Parts {
    std::deque<Tensor> tensors;
    std::vector<const Tensor*> inputs;
    std::vector<Tensor*> outputs;
  };
  std::vector<Parts> parts_;  // by lane
  bool is_bound_ = false;
};

}  // namespace weft

#endif  // WEFT_OPS_BOUND_KERNEL_H_
