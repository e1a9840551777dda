// Elementwise functions of two tensors, broadcast, and of a tensor and numbers.
#include <cstdint>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

constexpr int kMaxRank = 8;

// The offsets of two operands at a position of the result: a LoopNest on the device.
struct Strides {
  int rank = 0;
  int64_t extents[kMaxRank], a[kMaxRank], b[kMaxRank];

  static absl::StatusOr<Strides> Make(const LoopNest& nest) {
    Strides strides;
    strides.rank = static_cast<int>(nest.extents.size());
    if (strides.rank > kMaxRank) {
      return absl::UnimplementedError(
          absl::StrCat("no kernel for operands that alternate ", strides.rank, " times"));
    }
    for (int d = 0; d < strides.rank; ++d) {
      strides.extents[d] = nest.extents[d];
      strides.a[d] = nest.a_strides[d];
      strides.b[d] = nest.b_strides[d];
    }
    return strides;
  }

  __device__ void At(int64_t i, int64_t* in_a, int64_t* in_b) const {
    *in_a = *in_b = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const int64_t at = i % extents[d];
      i /= extents[d];
      *in_a += at * a[d];
      *in_b += at * b[d];
    }
  }
};

template <typename T>
struct AddForward {
  Strides strides;
  const T *x, *y;
  T* out;
  __device__ void operator()(int64_t i) const {
    int64_t in_x, in_y;
    strides.At(i, &in_x, &in_y);
    out[i] = x[in_x] + y[in_y];
  }
};

// Sums the elements to which one element was broadcast; one block for each result.
template <typename T>
struct SumRepeated {
  Strides kept, summed;  // a: in `from`, b: in `to`
  int64_t count;
  const T* from;
  T* to;
  __device__ void operator()(int64_t row) const {
    int64_t begin, at, unused;
    kept.At(row, &begin, &at);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      int64_t offset;
      summed.At(i, &offset, &unused);
      sum += from[begin + offset];
    }
    sum = gpu::BlockSum(sum);
    if (threadIdx.x == 0) to[at] = static_cast<T>(sum);
  }
};

// Copies, if no element of the result is a sum.
template <typename T>
struct Move {
  Strides kept;  // a: in `from`, b: in `to`
  const T* from;
  T* to;
  __device__ void operator()(int64_t i) const {
    int64_t in_from, in_to;
    kept.At(i, &in_from, &in_to);
    to[in_to] = from[in_from];
  }
};

// to = from, summed over the dimensions that broadcast an operand of `aligned` dims.
template <typename T>
absl::Status Sum(const KernelContext& ctx, const T* from, const Dims& dims, const Dims& aligned,
                 T* to) {
  LoopNest kept, summed;
  SplitLoops(MakeLoopNest(dims, dims, aligned), &kept, &summed);
  WEFT_ASSIGN_OR_RETURN(const Strides of_kept, Strides::Make(kept));
  WEFT_ASSIGN_OR_RETURN(const Strides of_summed, Strides::Make(summed));
  const int64_t size = NumElements(kept.extents), count = NumElements(summed.extents);
  if (count == 1) return ForEach(ctx, size, Move<T>{of_kept, from, to});
  return ForEachRow(ctx, size, SumRepeated<T>{of_kept, of_summed, count, from, to});
}

// Out = X + Y.
absl::StatusOr<Kernel> Add(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const int64_t axis = op.attrs().Int("axis");
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(x(ctx).dims(), y(ctx).dims(), axis));
    WEFT_ASSIGN_OR_RETURN(const Strides strides,
                          Strides::Make(MakeLoopNest(shapes.out, shapes.x, shapes.y)));
    return ForEach(ctx, out(ctx).size(),
                   AddForward<T>{strides, x.data<T>(ctx), y.data<T>(ctx), out.data<T>(ctx)});
  });
}

// X@GRAD and Y@GRAD = Out@GRAD, each summed over broadcast dimensions.
absl::StatusOr<Kernel> AddGrad(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const int64_t axis = op.attrs().Int("axis");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(x(ctx).dims(), y(ctx).dims(), axis));
    const auto write = [&](const Out& gradient, const Dims& aligned) -> absl::Status {
      if (gradient.get(ctx) == nullptr) return absl::OkStatus();
      return Sum<T>(ctx, dout.data<T>(ctx), shapes.out, aligned, gradient.data<T>(ctx));
    };
    WEFT_RETURN_IF_ERROR(write(dx, shapes.x));
    return write(dy, shapes.y);
  });
}

template <typename T>
struct Linear {
  const T* x;
  T scale, bias;
  bool bias_first;
  T* out;
  __device__ void operator()(int64_t i) const {
    out[i] = bias_first ? scale * (x[i] + bias) : scale * x[i] + bias;
  }
};

// Out = scale X + bias, or scale (X + bias).
absl::StatusOr<Kernel> Scale(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double scale = op.attrs().Float("scale"), bias = op.attrs().Float("bias");
  const bool bias_first = !op.attrs().Bool("bias_after_scale");
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEach(ctx, x(ctx).size(),
                   Linear<T>{x.data<T>(ctx), static_cast<T>(scale), static_cast<T>(bias),
                             bias_first, out.data<T>(ctx)});
  });
}

}  // namespace

void AddGpuElementwiseKernels(KernelTable* table) {
  table->Add("elementwise_add", Add, AddGrad);
  table->Add("scale", Scale);
}

}  // namespace weft
