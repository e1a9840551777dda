// Updates of a parameter by its gradient.
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

template <typename T>
struct SgdUpdate {
  const T *param, *grad, *learning_rate;  // the rate: one number, in the device's memory
  T* out;
  __device__ void operator()(int64_t i) const { out[i] = param[i] - *learning_rate * grad[i]; }
};

// p -= lr g.
absl::StatusOr<Kernel> Sgd(OpKernel op) {
  const In param = op.in("Param"), grad = op.in("Grad"), rate = op.in("LearningRate");
  const Out out = op.out("ParamOut");
  return op.InPlace().Make(Floats(param), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEach(
        ctx, param(ctx).size(),
        SgdUpdate<T>{param.data<T>(ctx), grad.data<T>(ctx), rate.data<T>(ctx), out.data<T>(ctx)});
  });
}

}  // namespace

void AddGpuOptimizerKernels(KernelTable* table) { table->Add("sgd", Sgd); }

}  // namespace weft
