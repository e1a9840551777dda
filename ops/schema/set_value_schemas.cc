// Assigns values to a slice.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// ValueTensor can be repeated to the dims of the slice.
absl::Status CheckFills(const InferContext& context, const Dims& slice) {
  const TensorType* value = context.Input("ValueTensor");
  if (value == nullptr || Repeats(value->dims, slice)) return absl::OkStatus();
  return context.InputError("ValueTensor",
                            absl::StrCat("a shape to repeat to ", DimsToString(slice)));
}

// The value, repeated, fills the slice.
absl::Status InferSetValue(InferContext& context, const TensorType& x) {
  if (HasAttrInput(context)) return absl::OkStatus();
  if (!context.attrs().Ints("none_axes").empty()) {
    return context.AttrError("none_axes", "no axes", "some");
  }
  WEFT_ASSIGN_OR_RETURN(const Dims slice, SlicedDims(context, x.dims, "steps", "none_axes"));
  WEFT_RETURN_IF_ERROR(CheckFills(context, slice));
  context.SetOutput("Out", x);
  return absl::OkStatus();
}

// Input@GRAD is like Out@GRAD; ValueTensor@GRAD like ValueTensor.
absl::Status InferSetValueGrad(InferContext& context) {
  const TensorType* grad = context.Input("Out@GRAD");
  if (grad != nullptr && !HasAttrInput(context)) {
    WEFT_ASSIGN_OR_RETURN(const Dims slice, SlicedDims(context, grad->dims, "steps", "none_axes"));
    WEFT_RETURN_IF_ERROR(CheckFills(context, slice));
    context.SetOutput("Input@GRAD", *grad);
  }
  return GradsLikeInputs()(context);
}

}  // namespace

void AddSetValueSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
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
                  .Infer(IfKnown("Input", InferSetValue)),
              {{"ValueTensor"}, {"Out"}, {"Input", "ValueTensor"}}, InferSetValueGrad);
}

}  // namespace weft
