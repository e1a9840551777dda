// Arithmetic on two operands, elementwise, and its gradients. A new op is a struct and a line in
// AddElementwiseKernels.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/status_macros.h"
#include "ops/cpu/binary.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- The ops -------------------------------------------------------------------------------------

// An op that is defined for all integers. Others say what is wrong with a Y.
struct Total {
  template <typename T>
  static const char* Objection(T) {
    return nullptr;
  }
};

struct Add : Total {
  static constexpr double kYGradient = 1;  // d Out / d Y; d Out / d X is 1
  template <typename T>
  T operator()(T x, T y) const {
    return static_cast<T>(Wrapping(x) + Wrapping(y));
  }
};

struct Sub : Total {
  static constexpr double kYGradient = -1;
  template <typename T>
  T operator()(T x, T y) const {
    return static_cast<T>(Wrapping(x) - Wrapping(y));
  }
};

struct Mul : Total {
  static constexpr bool kGradReadsOut = false;
  template <typename T>
  T operator()(T x, T y) const {
    return static_cast<T>(Wrapping(x) * Wrapping(y));
  }
  template <typename T>
  static T Dx(T, T y, T, T dout) {
    return dout * y;
  }
  template <typename T>
  static T Dy(T x, T, T, T dout) {
    return dout * x;
  }
};

// Integers are cut off towards zero.
struct Div {
  static constexpr bool kGradReadsOut = true;
  template <typename T>
  static const char* Objection(T y) {
    return y == 0 ? "division by zero" : nullptr;
  }
  template <typename T>
  T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      if (y == -1) return static_cast<T>(0 - Wrapping(x));  // the lowest number has no negative
    }
    return x / y;
  }
  template <typename T>
  static T Dx(T, T y, T, T dout) {
    return dout / y;
  }
  template <typename T>
  static T Dy(T, T y, T out, T dout) {
    return -dout * out / y;
  }
};

// The remainder of the division that rounds down: it has the sign of Y.
struct Mod {
  template <typename T>
  static const char* Objection(T y) {
    return y == 0 ? "division by zero" : nullptr;
  }
  template <typename T>
  T operator()(T x, T y) const {
    T remainder;
    if constexpr (std::is_integral_v<T>) {
      if (y == -1) return 0;  // the quotient of the lowest number does not fit
      remainder = x % y;
    } else {
      remainder = std::fmod(x, y);
    }
    return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
  }
};

// Where both are equal, the gradient is Y's.
struct Max : Total {
  static constexpr bool kGradReadsOut = false;
  template <typename T>
  T operator()(T x, T y) const {
    return x > y ? x : y;
  }
  template <typename T>
  static T Dx(T x, T y, T, T dout) {
    return x > y ? dout : T(0);
  }
  template <typename T>
  static T Dy(T x, T y, T, T dout) {
    return x > y ? T(0) : dout;
  }
};

struct Min : Total {
  static constexpr bool kGradReadsOut = false;
  template <typename T>
  T operator()(T x, T y) const {
    return x < y ? x : y;
  }
  template <typename T>
  static T Dx(T x, T y, T, T dout) {
    return x < y ? dout : T(0);
  }
  template <typename T>
  static T Dy(T x, T y, T, T dout) {
    return x < y ? T(0) : dout;
  }
};

struct Pow {
  static constexpr bool kGradReadsOut = false;
  template <typename T>
  static T Dx(T x, T y, T, T dout) {
    return dout * y * std::pow(x, y - 1);
  }
  template <typename T>
  static T Dy(T x, T y, T, T dout) {
    return dout * std::log(x) * std::pow(x, y);
  }
  template <typename T>
  static const char* Objection(T y) {
    return y < 0 ? "negative power of an integer" : nullptr;
  }
  template <typename T>
  T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      auto power = Wrapping(T(1)), square = Wrapping(x);
      for (auto rest = Wrapping(y); rest != 0; rest >>= 1) {
        if (rest & 1) power *= square;
        square *= square;
      }
      return static_cast<T>(power);
    } else {
      return std::pow(x, y);
    }
  }
};

// Rounds down.
struct FloorDiv {
  template <typename T>
  static const char* Objection(T y) {
    return Div::Objection(y);
  }
  template <typename T>
  T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      const T quotient = Div()(x, y);
      return y != -1 && x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
    } else {
      return std::floor(x / y);
    }
  }
};

// --- Forward -------------------------------------------------------------------------------------

template <typename Op, typename T>
absl::Status CheckIntegers(const Tensor& y) {
  if constexpr (std::is_integral_v<T>) {
    for (int64_t i = 0; i < y.size(); ++i) {
      const char* objection = Op::Objection(y.data<T>()[i]);
      if (objection != nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("input Y: ", y.data<T>()[i], " at position ", i, ": ", objection));
      }
    }
  }
  return absl::OkStatus();
}

// Out = X op Y.
template <typename Op>
absl::StatusOr<Kernel> Forward(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const BinaryOp op, BinaryOp::Make(spec));
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(op.x);
    const Tensor& y = *ctx.in(op.y);
    Tensor* out = ctx.out(op.out);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, op.Align(ctx, x.dtype()));
    return ForNumberType("input X", x, [&](auto tag) -> absl::Status {
      using T = typename decltype(tag)::type;
      WEFT_RETURN_IF_ERROR((CheckIntegers<Op, T>(y)));
      out->Resize(x.dtype(), shapes.out);
      MapBroadcast(shapes, x.data<T>(), y.data<T>(), out->data<T>(), Op());
      return absl::OkStatus();
    });
  });
}

// --- Backward ------------------------------------------------------------------------------------

// What the gradient of an op reads and writes.
struct GradOp {
  int x, y, dout, dx, dy;
  int64_t axis;

  static absl::StatusOr<GradOp> Make(const KernelSpec& spec) {
    GradOp op;
    WEFT_ASSIGN_OR_RETURN(op.x, RequiredInput(spec, "X"));
    WEFT_ASSIGN_OR_RETURN(op.y, RequiredInput(spec, "Y"));
    WEFT_ASSIGN_OR_RETURN(op.dout, RequiredInput(spec, "Out@GRAD"));
    op.dx = spec.Output("X@GRAD");
    op.dy = spec.Output("Y@GRAD");
    op.axis = spec.attrs.Int("axis");
    return op;
  }

  absl::StatusOr<Broadcast> Align(const KernelContext& ctx) const {
    WEFT_ASSIGN_OR_RETURN(Broadcast shapes, AlignOperands(*ctx.in(x), *ctx.in(y), axis));
    WEFT_RETURN_IF_ERROR(CheckDType("Out@GRAD", *ctx.in(dout), ctx.in(x)->dtype()));
    WEFT_RETURN_IF_ERROR(CheckDims("Out@GRAD", *ctx.in(dout), shapes.out));
    return shapes;
  }
};

// Writes factor (1 or -1) times `full`, which has the dims of the result, summed over the
// dimensions along which the operand of these dims was repeated. `aligned` are the operand's dims
// at their places in those of the result.
template <typename T>
void WriteGradient(const Tensor& full, const Dims& dims, const Dims& aligned, double factor,
                   Tensor* gradient) {
  gradient->Resize(full.dtype(), dims);
  SumBroadcast(full.data<T>(), full.dims(), aligned, factor, gradient->data<T>());
}

// Of an op whose gradients are Out@GRAD itself or its negative.
template <typename Op>
absl::StatusOr<Kernel> LinearBackward(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const GradOp op, GradOp::Make(spec));
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& dout = *ctx.in(op.dout);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, op.Align(ctx));
    const Dims x_dims = ctx.in(op.x)->dims(), y_dims = ctx.in(op.y)->dims();
    return ForFloatType("input Out@GRAD", dout, [&](auto tag) {
      using T = typename decltype(tag)::type;
      // X@GRAD first: in place of Out@GRAD it has the same values, in place of which Y@GRAD may
      // then be written.
      if (Tensor* dx = ctx.out(op.dx)) WriteGradient<T>(dout, x_dims, shapes.x, 1, dx);
      if (Tensor* dy = ctx.out(op.dy)) {
        WriteGradient<T>(dout, y_dims, shapes.y, Op::kYGradient, dy);
      }
      return absl::OkStatus();
    });
  });
}

// Of any other op: X@GRAD and Y@GRAD are Dx and Dy at every position of the result, each summed to
// the operand's dims.
template <typename Op>
absl::StatusOr<Kernel> Backward(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const GradOp op, GradOp::Make(spec));
  int out_index = op.dout;  // stands in where Out is not read
  if (Op::kGradReadsOut) {
    WEFT_ASSIGN_OR_RETURN(out_index, RequiredInput(spec, "Out"));
  }
  return Kernel([=, x_scratch = Tensor(),
                 y_scratch = Tensor()](const KernelContext& ctx) mutable -> absl::Status {
    const Tensor& x = *ctx.in(op.x);
    const Tensor& y = *ctx.in(op.y);
    const Tensor& out = *ctx.in(out_index);
    const Tensor& dout = *ctx.in(op.dout);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, op.Align(ctx));
    WEFT_RETURN_IF_ERROR(CheckDType("Out", out, x.dtype()));
    WEFT_RETURN_IF_ERROR(CheckDims("Out", out, shapes.out));
    const Dims x_dims = x.dims(), y_dims = y.dims();
    Tensor* dx = ctx.out(op.dx);
    Tensor* dy = ctx.out(op.dy);
    // Where the values before the sum go: to the gradient itself where there is nothing to sum. A
    // gradient that takes the place of an input is written when both have been computed.
    const auto full = [&](Tensor* gradient, const Dims& dims, Tensor* scratch) {
      const bool is_input =
          gradient == &x || gradient == &y || gradient == &out || gradient == &dout;
      return dims == shapes.out && !is_input ? gradient : scratch;
    };
    Tensor* full_dx = full(dx, x_dims, &x_scratch);
    Tensor* full_dy = full(dy, y_dims, &y_scratch);
    return ForFloatType("input Out@GRAD", dout, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const auto compute = [&](auto derivative, Tensor* to) {
        to->Resize(dout.dtype(), shapes.out);
        const T *xs = x.data<T>(), *ys = y.data<T>();
        const T *outs = out.data<T>(), *douts = dout.data<T>();
        T* values = to->data<T>();
        Walk(MakeLoopNest(shapes.out, shapes.x, shapes.y), [&](int64_t xi, int64_t yi) {
          *values++ = derivative(xs[xi], ys[yi], *outs++, *douts++);
        });
      };
      if (dx != nullptr) compute(Op::template Dx<T>, full_dx);
      if (dy != nullptr) compute(Op::template Dy<T>, full_dy);
      if (dx != nullptr && dx != full_dx) WriteGradient<T>(*full_dx, x_dims, shapes.x, 1, dx);
      if (dy != nullptr && dy != full_dy) WriteGradient<T>(*full_dy, y_dims, shapes.y, 1, dy);
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddElementwiseKernels(KernelTable* table) {
  table->Add("elementwise_add", Framed(Forward<Add>));
  table->Add("elementwise_sub", Framed(Forward<Sub>));
  table->Add("elementwise_mul", Framed(Forward<Mul>));
  table->Add("elementwise_div", Framed(Forward<Div>));
  table->Add("elementwise_mod", Framed(Forward<Mod>));
  table->Add("elementwise_max", Framed(Forward<Max>));
  table->Add("elementwise_min", Framed(Forward<Min>));
  table->Add("elementwise_pow", Framed(Forward<Pow>));

  table->Add("elementwise_add_grad", Framed(LinearBackward<Add>));
  table->Add("elementwise_sub_grad", Framed(LinearBackward<Sub>));
  table->Add("elementwise_mul_grad", Framed(Backward<Mul>));
  table->Add("elementwise_div_grad", Framed(Backward<Div>));
  table->Add("elementwise_floordiv", Framed(Forward<FloorDiv>));
  table->Add("grad_add", Framed(Forward<Add>));
  table->Add("minus", Framed(Forward<Sub>));
  table->Add("elementwise_pow_grad", Framed(Backward<Pow>));
  table->Add("elementwise_max_grad", Framed(Backward<Max>));
  table->Add("elementwise_min_grad", Framed(Backward<Min>));
}

}  // namespace weft
