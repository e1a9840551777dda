// Arithmetic on two operands, elementwise, and its gradients; on a tensor and numbers. By the
// formulas of ops/formulas/elementwise.h.
#include <cstdint>
#include <memory>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/formulas/elementwise.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/loops.h"
#include "ops/gpu/sum_broadcast.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

template <typename T, typename F>
struct MapBroadcast {
  Loops loops;
  const T *x, *y;
  T* out;
  WEFT_DEVICE void operator()(int64_t i) const {
    int64_t in_x, in_y;
    loops.At(i, &in_x, &in_y);
    out[i] = F()(x[in_x], y[in_y]);
  }
};

// The element of a gradient at a position of the result, before sums over broadcast dimensions.
template <typename T, typename F>
struct GradientAt {
  Loops loops;  // of X and Y
  const T *x, *y, *out, *dout;
  WEFT_DEVICE T operator()(int64_t i) const {
    int64_t in_x, in_y;
    loops.At(i, &in_x, &in_y);
    return F()(x[in_x], y[in_y], out[i], dout[i]);
  }
};

int64_t BroadcastAxis(const OpAttrs& attrs) { return attrs.Has("axis") ? attrs.Int("axis") : -1; }

// Out = X op Y.
template <template <typename> class Op, auto types = Floats>
absl::StatusOr<Kernel> Forward(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const int64_t axis = BroadcastAxis(op.attrs());
  return op.InPlace().Make(types(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(x(ctx).dims(), y(ctx).dims(), axis));
    if (shapes.x == shapes.y) {
      return ForEach(ctx, out(ctx).size(),
                     MapTwo<T, Op<T>>{Op<T>(), x.data<T>(ctx), y.data<T>(ctx), out.data<T>(ctx)});
    }
    WEFT_ASSIGN_OR_RETURN(const Loops loops,
                          Loops::Make(MakeLoopNest(shapes.out, shapes.x, shapes.y)));
    return ForEach(ctx, out(ctx).size(),
                   MapBroadcast<T, Op<T>>{loops, x.data<T>(ctx), y.data<T>(ctx), out.data<T>(ctx)});
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
  return op.Make(
      Floats(dout),
      [=, scratch = std::make_shared<Tensor>()](const KernelContext& ctx,
                                                auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                              AlignShapes(x(ctx).dims(), y(ctx).dims(), axis));
        WEFT_ASSIGN_OR_RETURN(const Loops loops,
                              Loops::Make(MakeLoopNest(shapes.out, shapes.x, shapes.y)));
        const auto write = [&](auto formula, const Out& gradient,
                               const Dims& aligned) -> absl::Status {
          if (gradient.get(ctx) == nullptr) return absl::OkStatus();
          const GradientAt<T, decltype(formula)> from{loops, x.data<T>(ctx), y.data<T>(ctx),
                                                      out.data<T>(ctx), dout.data<T>(ctx)};
          return SumBroadcastTo(ctx, from, shapes.out, aligned,
                                ScratchLike(dout(ctx), scratch.get()), gradient.data<T>(ctx));
        };
        WEFT_RETURN_IF_ERROR(write(formulas::XGrad<Op<T>>(), dx, shapes.x));
        return write(formulas::YGrad<Op<T>>(), dy, shapes.y);
      });
}

// Out = scale X + bias, or scale (X + bias) without bias_after_scale. Integers wrap around.
absl::StatusOr<Kernel> Scale(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double factor = op.attrs().Float("scale"), offset = op.attrs().Float("bias");
  const bool bias_after_scale = op.attrs().Bool("bias_after_scale");
  return op.InPlace().Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T scale = Saturated<T>(factor), bias = Saturated<T>(offset);
    const auto map = [&](auto f) {
      return ForEach(ctx, x(ctx).size(),
                     MapOne<T, decltype(f)>{f, x.data<T>(ctx), out.data<T>(ctx)});
    };
    return bias_after_scale ? map(formulas::ScaleThenAdd<T>{scale, bias})
                            : map(formulas::AddThenScale<T>{scale, bias});
  });
}

// Out = X + step, for one element: step counters. Integers wrap around.
absl::StatusOr<Kernel> Increment(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double step = op.attrs().Float("step");
  return op.InPlace().Make(
      FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        using F = formulas::ScaleThenAdd<T>;
        WEFT_RETURN_IF_ERROR(CheckSize("X", x(ctx), 1));
        return ForEach(ctx, 1,
                       MapOne<T, F>{F{1, Saturated<T>(step)}, x.data<T>(ctx), out.data<T>(ctx)});
      });
}

}  // namespace

void AddGpuElementwiseKernels(KernelTable* table) {
  table->Add("elementwise_add", Forward<formulas::Add, FloatsAndInts>, Backward<formulas::Add>);
  table->Add("elementwise_sub", Forward<formulas::Sub, FloatsAndInts>, Backward<formulas::Sub>);
  table->Add("elementwise_mul", Forward<formulas::Mul, FloatsAndInts>, Backward<formulas::Mul>);
  table->Add("elementwise_div", Forward<formulas::Div>, Backward<formulas::Div>);
  table->Add("elementwise_pow", Forward<formulas::Pow>, Backward<formulas::Pow>);
  table->Add("elementwise_max", Forward<formulas::Max, FloatsAndInts>, Backward<formulas::Max>);
  table->Add("elementwise_min", Forward<formulas::Min, FloatsAndInts>, Backward<formulas::Min>);
  table->Add("elementwise_fmax", Forward<formulas::FMax>, Backward<formulas::FMax>);
  table->Add("elementwise_fmin", Forward<formulas::FMin>, Backward<formulas::FMin>);
  table->Add("elementwise_mod", Forward<formulas::Mod>);
  table->Add("elementwise_floordiv", Forward<formulas::FloorDiv>);
  table->Add("grad_add", Forward<formulas::Add, FloatsAndInts>);
  table->Add("minus", Forward<formulas::Sub, FloatsAndInts>);
  table->Add("increment", Increment);
  table->Add("scale", Scale);
}

}  // namespace weft
