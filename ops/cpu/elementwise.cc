// Arithmetic on two operands, elementwise, and its gradients; on a tensor and numbers. A new op is
// a struct in ops/formulas/elementwise.h and a line in AddElementwiseKernels.
#include "ops/formulas/elementwise.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

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
  const double y_sign = Op<double>::Dy(1);
  if (y_sign == 1) op.View(dy, dout);
  const auto types = FloatsAndInts(dout);
  return op.InPlace().Make(types, [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(x.dims(ctx), y.dims(ctx), axis));
    const T* from = dout.data<T>(ctx);
    // X@GRAD first: written in place of Out@GRAD it has the same values, and Y@GRAD may then be
    // written in place of them.
    if (T* to = dx.data_or_null<T>(ctx)) SumBroadcast(from, shapes.out, shapes.x, 1, to);
    if (T* to = dy.data_or_null<T>(ctx)) {
      SumBroadcast(from, shapes.out, shapes.y, y_sign, to);
    }
    return absl::OkStatus();
  });
}

// X@GRAD and Y@GRAD = Dx and Dy at every position of the result, each summed as above.
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
        write(formulas::XGrad<Op<T>>(), shapes.x, dx.get(ctx));
        write(formulas::YGrad<Op<T>>(), shapes.y, dy.get(ctx));
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

// The same of booleans, of which a vector has no array.
const bool* RepeatedMask(const Tensor& mask, const Dims& dims, std::unique_ptr<bool[]>* scratch) {
  if (mask.dims() == dims) return mask.data<bool>();
  const Dims padded = Padded(mask.dims(), dims.size());
  scratch->reset(new bool[NumElements(dims)]);
  const bool* from = mask.data<bool>();
  bool* to = scratch->get();
  Walk(MakeLoopNest(dims, padded, padded), [&](int64_t i, int64_t) { *to++ = from[i]; });
  return scratch->get();
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

// out = value where mask holds, x elsewhere.
absl::StatusOr<Kernel> MaskedFill(OpKernel op) {
  const In x = op.in("x"), mask = op.in("mask"), value = op.in("value");
  const Out out = op.out("out");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = out(ctx).dims();
    std::vector<T> x_scratch, value_scratch;
    const T* xs = Repeated<T>(x(ctx), dims, &x_scratch);
    const T* values = Repeated<T>(value(ctx), dims, &value_scratch);
    std::unique_ptr<bool[]> mask_scratch;
    const bool* is_value = RepeatedMask(mask(ctx), dims, &mask_scratch);
    T* to = out.data<T>(ctx);
    ForEach<T>(out(ctx).size(), [=](int64_t i) { to[i] = is_value[i] ? values[i] : xs[i]; });
  });
}

// x@GRAD = out@GRAD where mask does not hold, value@GRAD = out@GRAD where it holds; 0 elsewhere,
// and summed as above.
absl::StatusOr<Kernel> MaskedFillGrad(OpKernel op) {
  op.Ignore({"x", "value"});
  const In mask = op.in("mask"), dout = op.in("out@GRAD");
  const Out dx = op.out("x@GRAD"), dvalue = op.out("value@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = dout(ctx).dims();
    std::unique_ptr<bool[]> scratch;
    const bool* is_value = RepeatedMask(mask(ctx), dims, &scratch);
    const T* from = dout.data<T>(ctx);
    std::vector<T> full(dout(ctx).size());
    const auto write = [&](bool of_value, Tensor* gradient) {
      if (gradient == nullptr) return;
      for (size_t i = 0; i < full.size(); ++i) full[i] = is_value[i] == of_value ? from[i] : T(0);
      SumBroadcast(full.data(), dims, Padded(gradient->dims(), dims.size()), 1,
                   gradient->data<T>());
    };
    write(/*of_value=*/false, dx.get(ctx));
    write(/*of_value=*/true, dvalue.get(ctx));
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
    const T scale = Saturated<T>(factor), bias = Saturated<T>(offset);
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    const auto map = [&](auto f) {
      ForEach<T>(x(ctx).size(), [=](int64_t i) { to[i] = f(from[i]); });
    };
    if (bias_after_scale) {
      map(formulas::ScaleThenAdd<T>{scale, bias});
    } else {
      map(formulas::AddThenScale<T>{scale, bias});
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
  table->Add("elementwise_add", Forward<formulas::Add>, LinearBackward<formulas::Add>);
  table->Add("elementwise_sub", Forward<formulas::Sub>, LinearBackward<formulas::Sub>);
  table->Add("elementwise_mul", Forward<formulas::Mul>, Backward<formulas::Mul>);
  table->Add("elementwise_div", Forward<formulas::Div>, Backward<formulas::Div>);
  table->Add("elementwise_pow", Forward<formulas::Pow>, Backward<formulas::Pow>);
  table->Add("elementwise_max", Forward<formulas::Max>, Backward<formulas::Max>);
  table->Add("elementwise_min", Forward<formulas::Min>, Backward<formulas::Min>);
  table->Add("elementwise_fmax", Forward<formulas::FMax>, Backward<formulas::FMax>);
  table->Add("elementwise_fmin", Forward<formulas::FMin>, Backward<formulas::FMin>);
  table->Add("elementwise_heaviside", Forward<formulas::Heaviside>, Backward<formulas::Heaviside>);
  table->Add("elementwise_mod", Forward<formulas::Mod>, Backward<formulas::Mod>);
  table->Add("elementwise_floordiv", Forward<formulas::FloorDiv>);
  table->Add("grad_add", Forward<formulas::Add>);
  table->Add("minus", Forward<formulas::Sub>);
  table->Add("lerp", Lerp, LerpGrad);
  table->Add("masked_fill", MaskedFill, MaskedFillGrad);
  table->Add("atan2", Atan2, Atan2Grad);
  table->Add("increment", Increment);
  table->Add("scale", Scale);
}

}  // namespace weft
