// Arithmetic on two operands, elementwise, and its gradients; on a tensor and numbers. By the
// formulas of ops/formulas/elementwise.h.
#include <cstdint>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/formulas/elementwise.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/kernel_util.h"
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

template <typename T, typename F>
struct MapBroadcast {
  Strides strides;
  const T *x, *y;
  T* out;
  __device__ void operator()(int64_t i) const {
    int64_t in_x, in_y;
    strides.At(i, &in_x, &in_y);
    out[i] = F()(x[in_x], y[in_y]);
  }
};

// The element of a gradient at a position of the result, before sums over broadcast dimensions.
template <typename T, typename F>
struct GradientAt {
  Strides strides;  // of X and Y
  const T *x, *y, *out, *dout;
  __device__ T operator()(int64_t i) const {
    int64_t in_x, in_y;
    strides.At(i, &in_x, &in_y);
    return F()(x[in_x], y[in_y], out[i], dout[i]);
  }
};

// Sums the elements to which one element was broadcast; one block for each result.
template <typename T, typename F>
struct SumRepeated {
  Strides kept, summed;  // a: a position of the result, b: in `to`
  int64_t count;
  F from;
  T* to;
  __device__ void operator()(int64_t row) const {
    int64_t begin, at, unused;
    kept.At(row, &begin, &at);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      int64_t offset;
      summed.At(i, &offset, &unused);
      sum += from(begin + offset);
    }
    sum = gpu::BlockSum(sum);
    if (threadIdx.x == 0) to[at] = static_cast<T>(sum);
  }
};

// Writes them, if no element is a sum.
template <typename T, typename F>
struct Move {
  Strides kept;  // a: a position of the result, b: in `to`
  F from;
  T* to;
  __device__ void operator()(int64_t i) const {
    int64_t position, in_to;
    kept.At(i, &position, &in_to);
    to[in_to] = from(position);
  }
};

// to = from(position), summed over the dimensions that broadcast an operand of `aligned` dims.
template <typename T, typename F>
absl::Status Sum(const KernelContext& ctx, const F& from, const Dims& dims, const Dims& aligned,
                 T* to) {
  LoopNest kept, summed;
  SplitLoops(MakeLoopNest(dims, dims, aligned), &kept, &summed);
  WEFT_ASSIGN_OR_RETURN(const Strides of_kept, Strides::Make(kept));
  WEFT_ASSIGN_OR_RETURN(const Strides of_summed, Strides::Make(summed));
  const int64_t size = NumElements(kept.extents), count = NumElements(summed.extents);
  if (count == 1) return ForEach(ctx, size, Move<T, F>{of_kept, from, to});
  return ForEachRow(ctx, size, SumRepeated<T, F>{of_kept, of_summed, count, from, to});
}

int64_t BroadcastAxis(const OpAttrs& attrs) { return attrs.Has("axis") ? attrs.Int("axis") : -1; }

// Out = X op Y.
template <template <typename> class Op>
absl::StatusOr<Kernel> Forward(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const int64_t axis = BroadcastAxis(op.attrs());
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(x(ctx).dims(), y(ctx).dims(), axis));
    WEFT_ASSIGN_OR_RETURN(const Strides strides,
                          Strides::Make(MakeLoopNest(shapes.out, shapes.x, shapes.y)));
    return ForEach(
        ctx, out(ctx).size(),
        MapBroadcast<T, Op<T>>{strides, x.data<T>(ctx), y.data<T>(ctx), out.data<T>(ctx)});
  });
}

// X@GRAD and Y@GRAD = Dx and Dy at every position of the result, each summed over broadcast
// dimensions.
template <template <typename> class Op>
absl::StatusOr<Kernel> Backward(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y"), dout = op.in("Out@GRAD");
  constexpr bool kReadsOut = formulas::kGradReadsOut<Op<float>, float>;
  if (kReadsOut) WEFT_RETURN_IF_ERROR(RequiredInput(op.spec(), "Out").status());
  // Out@GRAD substitutes for Out if that is not read.
  const In out = kReadsOut ? op.in("Out") : dout;
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const int64_t axis = BroadcastAxis(op.attrs());
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(x(ctx).dims(), y(ctx).dims(), axis));
    WEFT_ASSIGN_OR_RETURN(const Strides strides,
                          Strides::Make(MakeLoopNest(shapes.out, shapes.x, shapes.y)));
    const auto write = [&](auto formula, const Out& gradient, const Dims& aligned) -> absl::Status {
      if (gradient.get(ctx) == nullptr) return absl::OkStatus();
      const GradientAt<T, decltype(formula)> from{strides, x.data<T>(ctx), y.data<T>(ctx),
                                                  out.data<T>(ctx), dout.data<T>(ctx)};
      return Sum<T>(ctx, from, shapes.out, aligned, gradient.data<T>(ctx));
    };
    WEFT_RETURN_IF_ERROR(write(formulas::XGrad<Op<T>>(), dx, shapes.x));
    return write(formulas::YGrad<Op<T>>(), dy, shapes.y);
  });
}

// Out = scale X + bias, or scale (X + bias) without bias_after_scale.
absl::StatusOr<Kernel> Scale(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double factor = op.attrs().Float("scale"), offset = op.attrs().Float("bias");
  const bool bias_after_scale = op.attrs().Bool("bias_after_scale");
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T scale = static_cast<T>(factor), bias = static_cast<T>(offset);
    const auto map = [&](auto f) {
      return ForEach(ctx, x(ctx).size(),
                     MapOne<T, decltype(f)>{f, x.data<T>(ctx), out.data<T>(ctx)});
    };
    return bias_after_scale ? map(formulas::ScaleThenAdd<T>{scale, bias})
                            : map(formulas::AddThenScale<T>{scale, bias});
  });
}

}  // namespace

void AddGpuElementwiseKernels(KernelTable* table) {
  table->Add("elementwise_add", Forward<formulas::Add>, Backward<formulas::Add>);
  table->Add("elementwise_sub", Forward<formulas::Sub>, Backward<formulas::Sub>);
  table->Add("elementwise_mul", Forward<formulas::Mul>, Backward<formulas::Mul>);
  table->Add("elementwise_div", Forward<formulas::Div>, Backward<formulas::Div>);
  table->Add("elementwise_pow", Forward<formulas::Pow>, Backward<formulas::Pow>);
  table->Add("elementwise_max", Forward<formulas::Max>, Backward<formulas::Max>);
  table->Add("elementwise_min", Forward<formulas::Min>, Backward<formulas::Min>);
  table->Add("elementwise_fmax", Forward<formulas::FMax>, Backward<formulas::FMax>);
  table->Add("elementwise_fmin", Forward<formulas::FMin>, Backward<formulas::FMin>);
  table->Add("elementwise_mod", Forward<formulas::Mod>);
  table->Add("elementwise_floordiv", Forward<formulas::FloorDiv>);
  table->Add("grad_add", Forward<formulas::Add>);
  table->Add("minus", Forward<formulas::Sub>);
  table->Add("scale", Scale);
}

}  // namespace weft
