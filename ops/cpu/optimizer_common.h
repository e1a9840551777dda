// What updates of a parameter have in common: a gradient, a learning rate, and state that goes in
// and comes out, mostly in place.
#ifndef WEFT_OPS_CPU_OPTIMIZER_COMMON_H_
#define WEFT_OPS_CPU_OPTIMIZER_COMMON_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/kernel.h"
#include "ops/tensor.h"

namespace weft {

// A tensor that an update reads from input S and writes to output SOut: the parameter, a moment.
struct OptimizerState {
  int in = -1, out = -1;

  // InvalidArgument where the op lacks one of the two.
  static absl::StatusOr<OptimizerState> Make(const KernelSpec& spec, const std::string& slot);

  // InvalidArgument unless the state has the element type and the size of the parameter.
  absl::Status CheckLike(const KernelContext& ctx, absl::string_view slot,
                         const Tensor& param) const;

  // Readies the output and returns where the state is read, and through `to` where it is written.
  template <typename T>
  const T* Open(const KernelContext& ctx, T** to) const {
    const Tensor& from = *ctx.in(in);
    ctx.out(out)->Resize(from.dtype(), from.dims());
    *to = ctx.out(out)->data<T>();
    return from.data<T>();
  }

  // Leaves the state as it is.
  void Copy(const KernelContext& ctx) const;
};

// What every update reads.
struct OptimizerCommon {
  OptimizerState param;
  int grad, learning_rate;

  // Unimplemented for an update of a half-precision parameter, which has a MasterParam.
  static absl::StatusOr<OptimizerCommon> Make(const KernelSpec& spec);

  absl::StatusOr<double> LearningRate(const KernelContext& ctx) const;
  // InvalidArgument unless the gradient has the element type and the size of the parameter.
  absl::Status CheckGrad(const KernelContext& ctx) const;
};

}  // namespace weft

#endif  // WEFT_OPS_CPU_OPTIMIZER_COMMON_H_
