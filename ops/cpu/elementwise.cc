// Elementwise ops of two operands whose gradients are Out@GRAD itself or its negative.
#include <cstdint>

#include "base/status_macros.h"
#include "ops/cpu/broadcast.h"
#include "ops/cpu/families.h"
#include "ops/cpu/kernel_util.h"

namespace weft {
namespace {

struct Add {
  static constexpr const char* kType = "elementwise_add";
  static constexpr const char* kGradType = "elementwise_add_grad";
  static constexpr double kYGradient = 1;  // d Out / d Y; d Out / d X is 1
  template <typename T>
  T operator()(T x, T y) const {
    return x + y;
  }
};

struct Sub {
  static constexpr const char* kType = "elementwise_sub";
  static constexpr const char* kGradType = "elementwise_sub_grad";
  static constexpr double kYGradient = -1;
  template <typename T>
  T operator()(T x, T y) const {
    return x - y;
  }
};

// An operand that is repeated has other dims than the result, which cannot take its place then.
absl::Status CheckInPlace(absl::string_view slot, const Tensor& in, const Tensor* out,
                          const Dims& out_dims) {
  if (&in != out || in.dims() == out_dims) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("output Out: in place of input ", slot, " of shape ", DimsToString(in.dims()),
                   ", but the result has shape ", DimsToString(out_dims)));
}

// Out = X op Y.
template <typename Op>
absl::StatusOr<Kernel> Forward(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int y_index, RequiredInput(spec, "Y"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  const int64_t axis = spec.attrs.Int("axis");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    const Tensor& y = *ctx.in(y_index);
    Tensor* out = ctx.out(out_index);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(x.dims(), y.dims(), axis));
    WEFT_RETURN_IF_ERROR(CheckInPlace("X", x, out, shapes.out));
    WEFT_RETURN_IF_ERROR(CheckInPlace("Y", y, out, shapes.out));
    return ForNumberType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      out->Resize(x.dtype(), shapes.out);
      MapBroadcast(shapes, x.data<T>(), y.data<T>(), out->data<T>(), Op());
      return absl::OkStatus();
    });
  });
}

// Writes factor (1 or -1) times dout, summed over the dimensions along which the operand of these
// dims was repeated. `aligned` are the operand's dims at their places in those of dout.
template <typename T>
void WriteGradient(const Tensor& dout, const Dims& dims, const Dims& aligned, double factor,
                   Tensor* gradient) {
  gradient->Resize(dout.dtype(), dims);
  SumBroadcast(dout.data<T>(), dout.dims(), aligned, factor, gradient->data<T>());
}

// X@GRAD = Out@GRAD, Y@GRAD = ±Out@GRAD, each summed to the operand's dims.
template <typename Op>
absl::StatusOr<Kernel> Backward(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int y_index, RequiredInput(spec, "Y"));
  WEFT_ASSIGN_OR_RETURN(const int dout_index, RequiredInput(spec, "Out@GRAD"));
  const int dx_index = spec.Output("X@GRAD"), dy_index = spec.Output("Y@GRAD");
  const int64_t axis = spec.attrs.Int("axis");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    const Tensor& y = *ctx.in(y_index);
    const Tensor& dout = *ctx.in(dout_index);
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes, AlignShapes(x.dims(), y.dims(), axis));
    if (dout.dims() != shapes.out) {
      return absl::InvalidArgumentError(absl::StrCat("input Out@GRAD: expected shape ",
                                                     DimsToString(shapes.out), ", found ",
                                                     DimsToString(dout.dims())));
    }
    return ForFloatType("input Out@GRAD", dout, [&](auto tag) {
      using T = typename decltype(tag)::type;
      // X@GRAD first: in place of Out@GRAD it has the same values, in place of which Y@GRAD may
      // then be written.
      if (Tensor* dx = ctx.out(dx_index)) WriteGradient<T>(dout, x.dims(), shapes.x, 1, dx);
      if (Tensor* dy = ctx.out(dy_index)) {
        WriteGradient<T>(dout, y.dims(), shapes.y, Op::kYGradient, dy);
      }
      return absl::OkStatus();
    });
  });
}

template <typename Op>
void AddOp(KernelTable* table) {
  table->Add(Op::kType, Forward<Op>);
  table->Add(Op::kGradType, Backward<Op>);
}

}  // namespace

void AddElementwiseKernels(KernelTable* table) {
  AddOp<Add>(table);
  AddOp<Sub>(table);
}

}  // namespace weft
