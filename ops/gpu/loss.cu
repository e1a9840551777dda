// Softmax over the last dimension and its cross entropy against hard labels.
#include <cmath>
#include <cstdint>

#include "base/status_macros.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// One block for each row. A label outside of the classes makes the loss of its row NaN, which the
// run reports: the host does not see labels.
template <typename T, typename Label>
struct SoftmaxLoss {
  const T* logits;
  const Label* labels;
  int64_t classes, ignore_index;
  T *softmax, *loss;

  __device__ void operator()(int64_t row) const {
    const T* x = logits + row * classes;
    T* p = softmax + row * classes;
    T largest = -INFINITY;
    for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) largest = max(largest, x[c]);
    largest = gpu::BlockMax(largest);
    T sum = 0;
    for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) sum += exp(x[c] - largest);
    sum = gpu::BlockSum(sum);
    const int64_t label = labels[row];
    if (threadIdx.x == 0) {
      const bool is_class = label >= 0 && label < classes;
      loss[row] = label == ignore_index ? T(0) : is_class ? log(sum) + largest - x[label] : T(NAN);
    }
    __syncthreads();  // p may be x
    for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) p[c] = exp(x[c] - largest) / sum;
  }
};

template <typename T, typename Label>
struct SoftmaxLossGrad {
  const T* softmax;
  const Label* labels;
  const T* dloss;
  int64_t classes, ignore_index;
  T* dlogits;

  __device__ void operator()(int64_t i) const {
    const int64_t row = i / classes, c = i % classes;
    const int64_t label = labels[row];
    dlogits[i] =
        label == ignore_index ? T(0) : dloss[row] * (softmax[i] - (c == label ? T(1) : T(0)));
  }
};

// The options that the kernel supports.
absl::Status CheckOptions(const KernelSpec& spec) {
  if (spec.attrs.Bool("soft_label") || !spec.attrs.Bool("use_softmax")) {
    return absl::UnimplementedError("attribute soft_label, use_softmax: no such kernel");
  }
  return absl::OkStatus();
}

absl::Status CheckAxis(int64_t axis, const Tensor& logits) {
  if (axis == -1 || axis == logits.rank() - 1) return absl::OkStatus();
  return absl::UnimplementedError("attribute axis: no kernel but for the last dimension");
}

// Softmax = softmax(Logits), Loss = -log of that of the label.
absl::StatusOr<Kernel> Forward(OpKernel op) {
  WEFT_RETURN_IF_ERROR(CheckOptions(op.spec()));
  const In logits = op.in("Logits"), label = op.in("Label");
  const Out softmax = op.out("Softmax"), loss = op.out("Loss");
  const int64_t axis = op.attrs().Int("axis"), ignore_index = op.attrs().Int("ignore_index");
  return op.InPlace().Make(
      Floats(logits), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_RETURN_IF_ERROR(CheckAxis(axis, logits(ctx)));
        const int64_t rows = loss(ctx).size();
        if (rows == 0) return absl::OkStatus();
        return ForElementType<int64_t, int32_t>("input Label", label(ctx), [&](auto tag) {
          using Label = typename decltype(tag)::type;
          return ForEachRow(ctx, rows,
                            SoftmaxLoss<T, Label>{logits.data<T>(ctx), label.data<Label>(ctx),
                                                  logits(ctx).size() / rows, ignore_index,
                                                  softmax.data<T>(ctx), loss.data<T>(ctx)});
        });
      });
}

// Logits@GRAD = Loss@GRAD (Softmax - 1 at the label).
absl::StatusOr<Kernel> Backward(OpKernel op) {
  WEFT_RETURN_IF_ERROR(CheckOptions(op.spec()));
  const In softmax = op.in("Softmax"), label = op.in("Label"), dloss = op.in("Loss@GRAD");
  const Out dlogits = op.out("Logits@GRAD");
  const int64_t axis = op.attrs().Int("axis"), ignore_index = op.attrs().Int("ignore_index");
  return op.InPlace().Make(
      Floats(softmax), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_RETURN_IF_ERROR(CheckAxis(axis, softmax(ctx)));
        const int64_t size = softmax(ctx).size(), rows = dloss(ctx).size();
        if (size == 0) return absl::OkStatus();
        return ForElementType<int64_t, int32_t>("input Label", label(ctx), [&](auto tag) {
          using Label = typename decltype(tag)::type;
          return ForEach(ctx, size,
                         SoftmaxLossGrad<T, Label>{softmax.data<T>(ctx), label.data<Label>(ctx),
                                                   dloss.data<T>(ctx), size / rows, ignore_index,
                                                   dlogits.data<T>(ctx)});
        });
      });
}

}  // namespace

void AddGpuLossKernels(KernelTable* table) {
  table->Add("softmax_with_cross_entropy", Forward, Backward);
}

}  // namespace weft
