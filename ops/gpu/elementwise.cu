// Arithmetic on two operands, elementwise, and its gradients; on a tensor and numbers. By the
// formulas of ops/formulas/elementwise.h.
#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/formulas/elementwise.h"
#include "ops/gpu/element_check.h"
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
  F f;
  Loops loops;
  const T *x, *y;
  T* out;
  WEFT_DEVICE void operator()(int64_t i) const {
    int64_t in_x, in_y;
    loops.At(i, &in_x, &in_y);
    out[i] = f(x[in_x], y[in_y]);
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

// A division, also of integers.
template <typename T, template <typename> class Op>
struct Divided {
  gpu::ElementCheck check;
  explicit Divided(const KernelContext& ctx) : check(ctx, "Y") {}
  WEFT_DEVICE T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      if (!check.IsDivisor(y)) return T(0);
    }
    return Op<T>()(x, y);
  }
};
template <typename T>
using Mod = Divided<T, formulas::Mod>;
template <typename T>
using FloorDiv = Divided<T, formulas::FloorDiv>;

template <typename F>
F FunctionOf(const KernelContext& ctx) {
  if constexpr (std::is_constructible_v<F, const KernelContext&>) {
    return F(ctx);
  } else {
    return F();
  }
}

int64_t BroadcastAxis(const OpAttrs& attrs) { return attrs.Has("axis") ? attrs.Int("axis") : -1; }

// Out = X op Y.
template <template <typename> class Op, auto types = Floats>
absl::StatusOr<Kernel> Forward(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const int64_t axis = BroadcastAxis(op.attrs());
  return op.InPlace().Make(types(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const auto f = FunctionOf<Op<T>>(ctx);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(x(ctx).dims(), y(ctx).dims(), axis));
    if (shapes.x == shapes.y) {
      return ForEach(ctx, out(ctx).size(),
                     MapTwo<T, Op<T>>{f, x.data<T>(ctx), y.data<T>(ctx), out.data<T>(ctx)});
    }
    WEFT_ASSIGN_OR_RETURN(const Loops loops,
                          Loops::Make(MakeLoopNest(shapes.out, shapes.x, shapes.y)));
    return ForEach(
        ctx, out(ctx).size(),
        MapBroadcast<T, Op<T>>{f, loops, x.data<T>(ctx), y.data<T>(ctx), out.data<T>(ctx)});
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

// --- masked_fill ---------------------------------------------------------------------------------

// As many dims, with leading ones of 1.
Dims Padded(const Dims& dims, size_t rank) {
  Dims padded(rank - dims.size(), 1);
  padded.insert(padded.end(), dims.begin(), dims.end());
  return padded;
}

// The positions of two operands that are broadcast to `dims`.
absl::StatusOr<Loops> LoopsOf(const Dims& dims, const Dims& a, const Dims& b) {
  return Loops::Make(MakeLoopNest(dims, Padded(a, dims.size()), Padded(b, dims.size())));
}

template <typename T>
struct FillMasked {
  Loops loops, of_mask;  // of X and Value; of Mask
  const bool* mask;
  const T *x, *value;
  T* out;
  WEFT_DEVICE void operator()(int64_t i) const {
    int64_t in_x, in_value, in_mask, same;
    loops.At(i, &in_x, &in_value);
    of_mask.At(i, &in_mask, &same);
    out[i] = mask[in_mask] ? value[in_value] : x[in_x];
  }
};

// What an element of Out@GRAD adds to the gradient of Value, or of X.
template <typename T>
struct MaskedGradient {
  Loops of_mask;
  bool of_value;
  const bool* mask;
  const T* dout;
  WEFT_DEVICE T operator()(int64_t i) const {
    int64_t in_mask, same;
    of_mask.At(i, &in_mask, &same);
    return mask[in_mask] == of_value ? dout[i] : T(0);
  }
};

// out = value where mask holds, x elsewhere.
absl::StatusOr<Kernel> MaskedFill(OpKernel op) {
  const In x = op.in("x"), mask = op.in("mask"), value = op.in("value");
  const Out out = op.out("out");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = out(ctx).dims();
    WEFT_ASSIGN_OR_RETURN(const Loops loops, LoopsOf(dims, x(ctx).dims(), value(ctx).dims()));
    WEFT_ASSIGN_OR_RETURN(const Loops of_mask, LoopsOf(dims, mask(ctx).dims(), mask(ctx).dims()));
    return ForEach(ctx, out(ctx).size(),
                   FillMasked<T>{loops, of_mask, mask.data<bool>(ctx), x.data<T>(ctx),
                                 value.data<T>(ctx), out.data<T>(ctx)});
  });
}

// x@GRAD = out@GRAD where mask does not hold, value@GRAD = out@GRAD where it holds; 0 elsewhere,
// and summed over broadcast dimensions.
absl::StatusOr<Kernel> MaskedFillGrad(OpKernel op) {
  op.Ignore({"x", "value"});
  const In mask = op.in("mask"), dout = op.in("out@GRAD");
  const Out dx = op.out("x@GRAD"), dvalue = op.out("value@GRAD");
  return op.Make(
      Floats(dout),
      [=, scratch = std::make_shared<Tensor>()](const KernelContext& ctx,
                                                auto zero) -> absl::Status {
        using T = decltype(zero);
        const Dims dims = dout(ctx).dims();
        WEFT_ASSIGN_OR_RETURN(const Loops of_mask,
                              LoopsOf(dims, mask(ctx).dims(), mask(ctx).dims()));
        const auto write = [&](bool of_value, const Out& gradient) -> absl::Status {
          if (gradient.get(ctx) == nullptr) return absl::OkStatus();
          return SumBroadcastTo(
              ctx, MaskedGradient<T>{of_mask, of_value, mask.data<bool>(ctx), dout.data<T>(ctx)},
              dims, Padded(gradient(ctx).dims(), dims.size()),
              ScratchLike(dout(ctx), scratch.get()), gradient.data<T>(ctx));
        };
        WEFT_RETURN_IF_ERROR(write(/*of_value=*/false, dx));
        return write(/*of_value=*/true, dvalue);
      });
}

// --- Numbers -------------------------------------------------------------------------------------

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
  table->Add("elementwise_heaviside", Forward<formulas::Heaviside>, Backward<formulas::Heaviside>);
  table->Add("elementwise_mod", Forward<Mod, FloatsAndInts>);
  table->Add("elementwise_floordiv", Forward<FloorDiv, FloatsAndInts>);
  table->Add("grad_add", Forward<formulas::Add, FloatsAndInts>);
  table->Add("masked_fill", MaskedFill, MaskedFillGrad);
  table->Add("minus", Forward<formulas::Sub, FloatsAndInts>);
  table->Add("increment", Increment);
  table->Add("scale", Scale);
}

}  // namespace weft
