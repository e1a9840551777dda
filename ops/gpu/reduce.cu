// Reductions of a whole tensor.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/status_macros.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The elements that one block sums. The mean of a larger tensor comes from the sums of its parts.
// The size determines their number, so that the order of the sum is the same in every run.
constexpr int64_t kPart = 1 << 14, kMaxParts = 1024;

// The sums of parts, whose sizes differ by at most one element; one block for each.
template <typename T>
struct SumParts {
  const T* x;
  int64_t size, parts;
  double* sums;
  __device__ void operator()(int64_t part) const {
    const int64_t least = size / parts, more = size % parts;  // the first ones have one more
    const int64_t begin = part * least + min(part, more);
    const int64_t end = begin + least + (part < more ? 1 : 0);
    double sum = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) sum += x[i];
    sum = gpu::BlockSum(sum);
    if (threadIdx.x == 0) sums[part] = sum;
  }
};

// The sum of `count` numbers, divided by the number of elements that went into them. One block.
template <typename From, typename T>
struct Mean {
  const From* x;
  int64_t count, size;
  T* out;
  __device__ void operator()(int64_t) const {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += x[i];
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
absl::StatusOr<Kernel> ReduceMean(OpKernel op) {
  WEFT_RETURN_IF_ERROR(CheckReducesAll(op.spec()));
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(
      Floats(x),
      [=, sums = std::make_shared<Tensor>()](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        const int64_t size = x(ctx).size(), parts = std::min((size + kPart - 1) / kPart, kMaxParts);
        if (parts <= 1) {
          return ForEachRow(ctx, 1, Mean<T, T>{x.data<T>(ctx), size, size, out.data<T>(ctx)});
        }
        if (!sums->allocated()) *sums = Tensor(x(ctx).memory());
        sums->Resize(DType::kFloat64, {parts});
        double* const of_parts = sums->data<double>();
        WEFT_RETURN_IF_ERROR(
            ForEachRow(ctx, parts, SumParts<T>{x.data<T>(ctx), size, parts, of_parts}));
        return ForEachRow(ctx, 1, Mean<double, T>{of_parts, parts, size, out.data<T>(ctx)});
      });
}

// X@GRAD = Out@GRAD / elements of X, everywhere.
absl::StatusOr<Kernel> ReduceMeanGrad(OpKernel op) {
  WEFT_RETURN_IF_ERROR(CheckReducesAll(op.spec()));
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
  table->Add("reduce_mean", ReduceMean, ReduceMeanGrad);
}

}  // namespace weft
