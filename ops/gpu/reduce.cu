// Reductions of a whole tensor.
#include <cstdint>

#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// One block for the whole tensor, so that the order of the sum does not change.
template <typename T>
struct MeanOfAll {
  const T* x;
  int64_t size;
  T* out;
  __device__ void operator()(int64_t) const {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) sum += x[i];
    sum = gpu::BlockSum(sum);
    if (threadIdx.x == 0) *out = static_cast<T>(sum / size);
  }
};

template <typename T>
struct Repeat {
  const T* from;
  T divisor;
  T* to;
  __device__ void operator()(int64_t i) const { to[i] = *from / divisor; }
};

absl::Status CheckReducesAll(const KernelSpec& spec) {
  if (spec.attrs.Bool("reduce_all") || spec.attrs.Ints("dim").empty()) return absl::OkStatus();
  return absl::UnimplementedError("attribute dim: no kernel for the mean over some dimensions");
}

// Out = mean of X.
absl::StatusOr<Kernel> ReduceMean(const KernelSpec& spec) {
  WEFT_RETURN_IF_ERROR(CheckReducesAll(spec));
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEachRow(ctx, 1, MeanOfAll<T>{x.data<T>(ctx), x(ctx).size(), out.data<T>(ctx)});
  });
}

// X@GRAD = Out@GRAD / elements of X, everywhere.
absl::StatusOr<Kernel> ReduceMeanGrad(const KernelSpec& spec) {
  WEFT_RETURN_IF_ERROR(CheckReducesAll(spec));
  OpKernel op(spec);
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t size = x(ctx).size();
    return ForEach(ctx, size, Repeat<T>{dout.data<T>(ctx), static_cast<T>(size), dx.data<T>(ctx)});
  });
}

}  // namespace

void AddGpuReduceKernels(KernelTable* table) {
  table->Add("reduce_mean", ReduceMean);
  table->Add("reduce_mean_grad", ReduceMeanGrad);
}

}  // namespace weft
