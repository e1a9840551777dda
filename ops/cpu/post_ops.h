// What a kernel does to its result before it writes it (KernelSpec::post_ops).
#ifndef WEFT_OPS_CPU_POST_OPS_H_
#define WEFT_OPS_CPU_POST_OPS_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "ops/cpu/dnnl_primitive.h"
#include "ops/kernel.h"
#include "ops/tensor.h"

namespace weft {

// The channels of a result, which a bias is added to: it is an array [outer, channels, inner].
struct ResultChannels {
  int64_t channels = 1, inner = 1;
};

// The post-ops of an op, for operands and a result of certain types.
class PostOps {
 public:
  PostOps() = default;
  // InvalidArgument if an operand does not have the type of the result, or of its channels.
  static absl::StatusOr<PostOps> Bind(const std::vector<PostOp>& list, const KernelContext& ctx,
                                      const Tensor& result, ResultChannels channels);

  bool empty() const { return list_.empty(); }
  // Of the result; 1 without post-ops.
  int64_t channels() const { return channels_.channels; }

  // Whether one adds a tensor of the dimensions of the result.
  bool adds_tensor() const;
  bool begins_with_bias() const { return !list_.empty() && list_[0].kind == PostOpKind::kBias; }
  // For a primitive with this result and biases of type `bias`: the post-ops as attributes, but for
  // a bias at the begin if the primitive `takes_bias`; and the operands of all, as arguments.
  void AddTo(const dnnl::memory::desc& result, const dnnl::memory::desc& bias, bool takes_bias,
             dnnl::primitive_attr* attributes,
             std::vector<DnnlPrimitive::Argument>* arguments) const;

  // The elements of the operands, in the order of the arguments.
  using Operands = absl::InlinedVector<const void*, 4>;
  void AddOperands(const KernelContext& ctx, Operands* operands) const;

  // Carries them out on a result that was written without. For float, double and BFloat16.
  template <typename T>
  void Apply(const KernelContext& ctx, Tensor* result) const;

 private:
  absl::InlinedVector<PostOp, 4> list_;
  ResultChannels channels_;
};

}  // namespace weft

#endif  // WEFT_OPS_CPU_POST_OPS_H_
