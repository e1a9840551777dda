#include "ops/cpu/binary.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

absl::Status CheckInPlace(absl::string_view slot, const Tensor& in, const Tensor* out,
                          const TensorType& result) {
  if (&in != out || (in.dims() == result.dims && in.dtype() == result.dtype)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "output Out: in place of input ", slot, ", which is ",
      ToString(TensorType{in.dtype(), in.dims()}), ", but the result is ", ToString(result)));
}

}  // namespace

absl::StatusOr<Broadcast> AlignOperands(const Tensor& x, const Tensor& y, int64_t axis) {
  WEFT_RETURN_IF_ERROR(CheckDType("Y", y, x.dtype()));
  return AlignShapes(x.dims(), y.dims(), axis);
}

absl::StatusOr<BinaryOp> BinaryOp::Make(const KernelSpec& spec) {
  BinaryOp op;
  WEFT_ASSIGN_OR_RETURN(op.x, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(op.y, RequiredInput(spec, "Y"));
  WEFT_ASSIGN_OR_RETURN(op.out, RequiredOutput(spec, "Out"));
  op.axis = spec.attrs.Has("axis") ? spec.attrs.Int("axis") : -1;
  return op;
}

absl::StatusOr<Broadcast> BinaryOp::Align(const KernelContext& ctx, DType out_dtype) const {
  WEFT_ASSIGN_OR_RETURN(Broadcast shapes, AlignOperands(*ctx.in(x), *ctx.in(y), axis));
  const TensorType result = {out_dtype, shapes.out};
  WEFT_RETURN_IF_ERROR(CheckInPlace("X", *ctx.in(x), ctx.out(out), result));
  WEFT_RETURN_IF_ERROR(CheckInPlace("Y", *ctx.in(y), ctx.out(out), result));
  return shapes;
}

}  // namespace weft
