// Arithmetic on two operands, elementwise, and its gradients; on a tensor and numbers. A new op is
// a struct and a line in AddElementwiseKernels.
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- The ops -------------------------------------------------------------------------------------

// An op that is defined for all integers. Others report an invalid Y.
template <typename T>
struct Total {
  static const char* WhyInvalid(T) { return nullptr; }
};

template <typename T>
struct Add : Total<T> {
  static constexpr double kYGradient = 1;  // d Out / d Y; d Out / d X is 1
  T operator()(T x, T y) const { return static_cast<T>(Wrapping(x) + Wrapping(y)); }
};

template <typename T>
struct Sub : Total<T> {
  static constexpr double kYGradient = -1;
  T operator()(T x, T y) const { return static_cast<T>(Wrapping(x) - Wrapping(y)); }
};

template <typename T>
struct Mul : Total<T> {
  static constexpr bool kGradReadsOut = false;
  T operator()(T x, T y) const { return static_cast<T>(Wrapping(x) * Wrapping(y)); }
  static T Dx(T, T y, T, T dout) { return dout * y; }
  static T Dy(T x, T, T, T dout) { return dout * x; }
};

// Integer division truncates towards zero.
template <typename T>
struct Div {
  static constexpr bool kGradReadsOut = true;
  static const char* WhyInvalid(T y) { return y == 0 ? "division by zero" : nullptr; }
  T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      if (y == -1) return static_cast<T>(0 - Wrapping(x));  // the lowest number has no negation
    }
    return x / y;
  }
  static T Dx(T, T y, T, T dout) { return dout / y; }
  static T Dy(T, T y, T out, T dout) { return -dout * out / y; }
};

// The remainder of floor division: it has the sign of Y.
template <typename T>
struct Mod {
  static const char* WhyInvalid(T y) { return Div<T>::WhyInvalid(y); }
  T operator()(T x, T y) const {
    T remainder;
    if constexpr (std::is_integral_v<T>) {
      if (y == -1) return 0;  // the quotient of the lowest number overflows
      remainder = x % y;
    } else {
      remainder = std::fmod(x, y);
    }
    return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
  }
};

// X if IsX, else Y; the gradient goes to the chosen one.
template <typename T, typename IsX>
struct Choice : Total<T> {
  static constexpr bool kGradReadsOut = false;
  T operator()(T x, T y) const { return IsX()(x, y) ? x : y; }
  static T Dx(T x, T y, T, T dout) { return IsX()(x, y) ? dout : T(0); }
  static T Dy(T x, T y, T, T dout) { return IsX()(x, y) ? T(0) : dout; }
};
template <typename T>
using Max = Choice<T, std::greater<T>>;
template <typename T>
using Min = Choice<T, std::less<T>>;

// Prefers X if Y is NaN.
template <typename Compare>
struct OrYIsNan {
  template <typename T>
  bool operator()(T x, T y) const {
    return Compare()(x, y) || y != y;
  }
};
template <typename T>
using FMax = Choice<T, OrYIsNan<std::greater_equal<T>>>;
template <typename T>
using FMin = Choice<T, OrYIsNan<std::less_equal<T>>>;

template <typename T>
struct Pow {
  static constexpr bool kGradReadsOut = false;
  static T Dx(T x, T y, T, T dout) { return dout * y * std::pow(x, y - 1); }
  static T Dy(T x, T y, T, T dout) { return dout * std::log(x) * std::pow(x, y); }
  static const char* WhyInvalid(T y) { return y < 0 ? "negative power of an integer" : nullptr; }
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
template <typename T>
struct FloorDiv {
  static const char* WhyInvalid(T y) { return Div<T>::WhyInvalid(y); }
  T operator()(T x, T y) const {
    if constexpr (std::is_integral_v<T>) {
      const T quotient = Div<T>()(x, y);
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
      const char* reason = Op::WhyInvalid(y.data<T>()[i]);
      if (reason != nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("input Y: ", y.data<T>()[i], " at position ", i, ": ", reason));
      }
    }
  }
  return absl::OkStatus();
}

int64_t BroadcastAxis(const OpAttrs& attrs) { return attrs.Has("axis") ? attrs.Int("axis") : -1; }

// Out = X op Y.
template <template <typename> class Op>
absl::StatusOr<Kernel> Forward(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const int64_t axis = BroadcastAxis(op.attrs());
  return op.InPlace().Pointwise().Make(
      FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_RETURN_IF_ERROR((CheckIntegers<Op<T>, T>(y(ctx))));
        WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                              AlignShapes(x(ctx).dims(), y(ctx).dims(), axis));
        MapBroadcast(shapes, x.data<T>(ctx), y.data<T>(ctx), out.data<T>(ctx), Op<T>());
        return absl::OkStatus();
      });
}

// --- Backward ------------------------------------------------------------------------------------

// X@GRAD = Out@GRAD and Y@GRAD = Out@GRAD or its negation, each summed over broadcast dimensions.
template <template <typename> class Op>
absl::StatusOr<Kernel> LinearBackward(OpKernel op) {
  const InTypes x = op.in_types("X"), y = op.in_types("Y");
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const int64_t axis = BroadcastAxis(op.attrs());
  op.View(dx, dout);
  if (Op<float>::kYGradient == 1) op.View(dy, dout);
  return op.InPlace().Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(x.dims(ctx), y.dims(ctx), axis));
    const T* from = dout.data<T>(ctx);
    // X@GRAD first: written in place of Out@GRAD it has the same values, and Y@GRAD may then be
    // written in place of them.
    if (T* to = dx.data_or_null<T>(ctx)) SumBroadcast(from, shapes.out, shapes.x, 1, to);
    if (T* to = dy.data_or_null<T>(ctx)) {
      SumBroadcast(from, shapes.out, shapes.y, Op<T>::kYGradient, to);
    }
    return absl::OkStatus();
  });
}

// X@GRAD and Y@GRAD = Dx and Dy at every position of the result, each summed as above.
template <template <typename> class Op>
absl::StatusOr<Kernel> Backward(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y"), dout = op.in("Out@GRAD");
  // Out@GRAD substitutes for Out if that is not read.
  const In out = Op<float>::kGradReadsOut ? op.in("Out") : dout;
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const int64_t axis = BroadcastAxis(op.attrs());
  return op.Make(
      Floats(dout),
      [=, scratch = Tensor()](const KernelContext& ctx, auto zero) mutable -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                              AlignShapes(x(ctx).dims(), y(ctx).dims(), axis));
        const auto write = [&](auto derivative, const Dims& aligned, Tensor* gradient) {
          if (gradient == nullptr) return;
          const bool is_repeated = aligned != shapes.out;
          if (is_repeated) scratch.Resize(gradient->dtype(), shapes.out);
          T* full = is_repeated ? scratch.data<T>() : gradient->data<T>();
          const T *xs = x.data<T>(ctx), *ys = y.data<T>(ctx);
          const T *outs = out.data<T>(ctx), *douts = dout.data<T>(ctx);
          int64_t begin = 0;
          WalkRows(MakeLoopNest(shapes.out, shapes.x, shapes.y),
                   [&](int64_t rows, int64_t n, int64_t xi, int64_t x_row, auto x_step, int64_t yi,
                       int64_t y_row, auto y_step) {
                     VectorizedFor<T>([=] {
                       for (int64_t row = 0; row < rows; ++row) {
                         const T *a = xs + xi + row * x_row, *b = ys + yi + row * y_row;
                         const T *c = outs + begin + row * n, *d = douts + begin + row * n;
                         T* const to = full + begin + row * n;
                         WEFT_INDEPENDENT_ITERATIONS
                         for (int64_t i = 0; i < n; ++i) {
                           to[i] = derivative(a[i * x_step], b[i * y_step], c[i], d[i]);
                         }
                       }
                     });
                     begin += rows * n;
                   });
          if (is_repeated) SumBroadcast(full, shapes.out, aligned, 1, gradient->data<T>());
        };
        const auto of_x = [](T a, T b, T c, T d) { return Op<T>::Dx(a, b, c, d); };
        const auto of_y = [](T a, T b, T c, T d) { return Op<T>::Dy(a, b, c, d); };
        write(of_x, shapes.x, dx.get(ctx));
        write(of_y, shapes.y, dy.get(ctx));
        return absl::OkStatus();
      });
}

// --- Three operands ------------------------------------------------------------------------------

// The dims with leading dimensions of size 1, up to that rank.
Dims Padded(const Dims& dims, size_t rank) {
  Dims padded(rank - dims.size(), 1);
  padded.insert(padded.end(), dims.begin(), dims.end());
  return padded;
}

// The elements of a tensor broadcast along dimensions of size 1: its own, or in `scratch`.
template <typename T>
const T* Repeated(const Tensor& tensor, const Dims& dims, std::vector<T>* scratch) {
  if (tensor.dims() == dims) return tensor.data<T>();
  const Dims padded = Padded(tensor.dims(), dims.size());
  scratch->clear();
  scratch->reserve(NumElements(dims));
  const T* from = tensor.data<T>();
  Walk(MakeLoopNest(dims, padded, padded),
       [&](int64_t i, int64_t) { scratch->push_back(from[i]); });
  return scratch->data();
}

// Out = X + Weight (Y - X).
absl::StatusOr<Kernel> Lerp(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y"), weight = op.in("Weight");
  const Out out = op.out("Out");
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = out(ctx).dims();
    std::vector<T> x_scratch, y_scratch, weight_scratch;
    const T* xs = Repeated<T>(x(ctx), dims, &x_scratch);
    const T* ys = Repeated<T>(y(ctx), dims, &y_scratch);
    const T* weights = Repeated<T>(weight(ctx), dims, &weight_scratch);
    T* to = out.data<T>(ctx);
    const int64_t size = out(ctx).size();
    ForEach<T>(size, [=](int64_t i) { to[i] = xs[i] + weights[i] * (ys[i] - xs[i]); });
  });
}

// X@GRAD = (1 - Weight) Out@GRAD and Y@GRAD = Weight Out@GRAD, summed as above; Weight has none.
absl::StatusOr<Kernel> LerpGrad(OpKernel op) {
  op.Ignore({"X", "Y", "Out"});
  const In weight = op.in("Weight"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = dout(ctx).dims();
    std::vector<T> weight_scratch, full(dout(ctx).size());
    const T* weights = Repeated<T>(weight(ctx), dims, &weight_scratch);
    const T* dys = dout.data<T>(ctx);
    const auto write = [&](bool of_y, Tensor* gradient) {
      if (gradient == nullptr) return;
      for (size_t i = 0; i < full.size(); ++i) {
        full[i] = dys[i] * (of_y ? weights[i] : 1 - weights[i]);
      }
      SumBroadcast(full.data(), dims, Padded(gradient->dims(), dims.size()), 1,
                   gradient->data<T>());
    };
    write(/*of_y=*/false, dx.get(ctx));
    write(/*of_y=*/true, dy.get(ctx));
  });
}

// --- Angles --------------------------------------------------------------------------------------

// Out = the angle of (X2, X1) to the first axis.
absl::StatusOr<Kernel> Atan2(OpKernel op) {
  const In x1 = op.in("X1"), x2 = op.in("X2");
  return op.InPlace().MakeElementwise(
      Floats(x1), op.out("Out"), [](auto a, auto b) { return std::atan2(a, b); }, x1, x2);
}

// X1@GRAD = Out@GRAD X2 / (X1² + X2²), X2@GRAD = -Out@GRAD X1 / (X1² + X2²).
absl::StatusOr<Kernel> Atan2Grad(OpKernel op) {
  const In x1 = op.in("X1"), x2 = op.in("X2"), dout = op.in("Out@GRAD");
  const auto gradients = [](double a, double b, double dy) {
    const double scale = dy / (a * a + b * b);
    return std::array{scale * b, -scale * a};
  };
  return op.InPlace().MakeElementwise(Floats(x1), std::array{op.out("X1@GRAD"), op.out("X2@GRAD")},
                                      gradients, x1, x2, dout);
}

// --- Numbers -------------------------------------------------------------------------------------

// Out = scale X + bias, or scale (X + bias) without bias_after_scale. Integers wrap around.
absl::StatusOr<Kernel> Scale(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double factor = op.attrs().Float("scale"), offset = op.attrs().Float("bias");
  const bool bias_after_scale = op.attrs().Bool("bias_after_scale");
  return op.InPlace().Pointwise().Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const auto scale = Wrapping(Saturated<T>(factor)), bias = Wrapping(Saturated<T>(offset));
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    const int64_t n = x(ctx).size();
    if (bias_after_scale) {
      ForEach<T>(n, [=](int64_t i) { to[i] = static_cast<T>(scale * Wrapping(from[i]) + bias); });
    } else {
      ForEach<T>(n, [=](int64_t i) { to[i] = static_cast<T>(scale * (Wrapping(from[i]) + bias)); });
    }
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
        WEFT_RETURN_IF_ERROR(CheckSize("X", x(ctx), 1));
        *out.data<T>(ctx) =
            static_cast<T>(Wrapping(*x.data<T>(ctx)) + Wrapping(Saturated<T>(step)));
        return absl::OkStatus();
      });
}

}  // namespace

void AddElementwiseKernels(KernelTable* table) {
  table->Add("elementwise_add", Forward<Add>, LinearBackward<Add>);
  table->Add("elementwise_sub", Forward<Sub>, LinearBackward<Sub>);
  table->Add("elementwise_mul", Forward<Mul>, Backward<Mul>);
  table->Add("elementwise_div", Forward<Div>, Backward<Div>);
  table->Add("elementwise_pow", Forward<Pow>, Backward<Pow>);
  table->Add("elementwise_max", Forward<Max>, Backward<Max>);
  table->Add("elementwise_min", Forward<Min>, Backward<Min>);
  table->Add("elementwise_fmax", Forward<FMax>, Backward<FMax>);
  table->Add("elementwise_fmin", Forward<FMin>, Backward<FMin>);
  table->Add("elementwise_mod", Forward<Mod>);
  table->Add("elementwise_floordiv", Forward<FloorDiv>);
  table->Add("grad_add", Forward<Add>);
  table->Add("minus", Forward<Sub>);
  table->Add("lerp", Lerp, LerpGrad);
  table->Add("atan2", Atan2, Atan2Grad);
  table->Add("increment", Increment);
  table->Add("scale", Scale);
}

}  // namespace weft
