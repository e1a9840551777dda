// Assigns values to a slice.
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Whether a tensor can be repeated to a slice. In front, it may have dimensions of size 1 that the
// slice lacks.
bool Fills(Dims value, const Dims& slice) {
  while (value.size() > slice.size() && value[0] == 1) value.erase(value.begin());
  return Repeats(value, slice);
}

// ValueTensor, or the tensor of attributes shape and values, can be repeated to the slice, without
// the axes that it drops.
absl::Status CheckFills(const InferContext& context, const Dims& slice) {
  const TensorType* value = context.Input("ValueTensor");
  if (value != nullptr && !Fills(value->dims, slice)) {
    return context.InputError("ValueTensor",
                              absl::StrCat("a shape to repeat to ", DimsToString(slice)));
  }
  if (context.HasInput("ValueTensor") || !context.attrs().Has("values")) return absl::OkStatus();
  const std::vector<int64_t> shape = context.attrs().Ints("shape");
  const size_t count = context.attrs().Scalars("values").size();
  if (count == 0) return absl::OkStatus();  // the kernel says so
  if (Product(shape) != static_cast<int64_t>(count)) {
    return context.AttrError("values", absl::StrCat(Product(shape), " numbers of attribute shape"),
                             absl::StrCat(count));
  }
  if (Fills(Dims(shape.begin(), shape.end()), slice)) return absl::OkStatus();
  return context.AttrError("shape", absl::StrCat("one to repeat to ", DimsToString(slice)),
                           DimsToString(shape));
}

// The value, repeated, fills the slice.
absl::Status InferSetValue(InferContext& context, const TensorType& x) {
  if (HasAttrInput(context)) return absl::OkStatus();
  if (!context.attrs().Ints("none_axes").empty()) {
    return context.AttrError("none_axes", "no axes", "some");
  }
  WEFT_ASSIGN_OR_RETURN(const Dims slice, SlicedDims(context, x.dims, "steps", "decrease_axes"));
  WEFT_RETURN_IF_ERROR(CheckFills(context, slice));
  context.SetOutput("Out", x);
  return absl::OkStatus();
}

// Input@GRAD is like Out@GRAD; ValueTensor@GRAD like ValueTensor.
absl::Status InferSetValueGrad(InferContext& context) {
  const TensorType* grad = context.Input("Out@GRAD");
  if (grad != nullptr && !HasAttrInput(context)) {
    WEFT_ASSIGN_OR_RETURN(const Dims slice,
                          SlicedDims(context, grad->dims, "steps", "decrease_axes"));
    WEFT_RETURN_IF_ERROR(CheckFills(context, slice));
    context.SetOutput("Input@GRAD", *grad);
  }
  return GradsLikeInputs()(context);
}

}  // namespace

void AddSetValueSchemas(OpSchemaTable* schemas) {
  AddWithGrad(
      schemas,
      OpSchema("set_value",
               "EndsTensorList*{ends}, Input, StartsTensorList*{starts}, "
               "StepsTensorList*{steps}, ValueTensor? -> Out")
          .Attr("axes", Longs{})
          .Attr("decrease_axes", Longs{})
          .Attr("dtype", kFp32)
          .Attr("ends", Longs{})
          .Attr("none_axes", Longs{})
          .Attr("shape", Longs{})
          .Attr("starts", Longs{})
          .Attr("steps", Longs{})
          .Attr("values", std::vector<Scalar>{})
          .Infer(InOrder({NoOpenEndsOfPaddle2("steps"), IfKnown("Input", InferSetValue)}))
          .Batch({batch::SetValue})
          .Pir("(x:Input, @starts, @ends, @steps) {values=}")
          .Pir("set_value_(x:Input, @starts, @ends, @steps) {values=}")
          .Pir("set_value_with_tensor(x:Input, values:ValueTensor!, @starts, @ends, @steps)")
          .Pir("set_value_with_tensor_(x:Input, values:ValueTensor!, @starts, @ends, @steps)"),
      {{"ValueTensor"}, {"Out"}, {"Input", "ValueTensor"}}, InferSetValueGrad);
}

}  // namespace weft
