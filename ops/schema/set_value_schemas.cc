// Values assigned to a slice.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_checks.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/slice_range.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional;
constexpr int kDuplicable = OpSchema::kDuplicable;

// The dims of a slice, its axes `decrease` left out; must_be_one: which have one element.
absl::StatusOr<Dims> SlicedDims(const InferContext& context, const Dims& x, const char* steps_attr,
                                const char* decrease_attr, bool must_be_one = false) {
  const OpAttrs& attrs = context.attrs();
  const std::vector<int64_t> axes = attrs.Ints("axes");
  const std::vector<int64_t> starts = attrs.Ints("starts"), ends = attrs.Ints("ends");
  WEFT_RETURN_IF_ERROR(CheckSameLength(context, "starts", axes.size()));
  WEFT_RETURN_IF_ERROR(CheckSameLength(context, "ends", axes.size()));
  std::vector<int64_t> steps(axes.size(), 1);
  if (steps_attr != nullptr) {
    WEFT_RETURN_IF_ERROR(CheckSameLength(context, steps_attr, axes.size()));
    steps = attrs.Ints(steps_attr);
  }
  Dims dims = x;
  for (size_t i = 0; i < axes.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axes", axes[i], x.size()));
    if (steps[i] == 0) return context.AttrError(steps_attr, "steps that are not 0", "0");
    if (dims[axis] != -1) dims[axis] = TakeSlice(starts[i], ends[i], steps[i], x[axis]).count;
  }
  std::vector<int64_t> decrease = attrs.Ints(decrease_attr);
  std::vector<bool> is_left_out(x.size(), false);
  for (int64_t value : decrease) {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, decrease_attr, value, x.size()));
    if (must_be_one && dims[axis] != -1 && dims[axis] != 1) {
      return context.AttrError(decrease_attr, "axes of one element", DimsToString(dims));
    }
    is_left_out[axis] = true;
  }
  Dims out;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!is_left_out[d]) out.push_back(dims[d]);
  }
  return out;
}

// ValueTensor can be repeated to the dims of the slice.
absl::Status CheckFills(const InferContext& context, const Dims& slice) {
  const TensorType* value = context.Input("ValueTensor");
  if (value == nullptr) return absl::OkStatus();
  const absl::optional<Dims> filled = BroadcastDims(slice, value->dims);
  if (filled.has_value() && value->dims.size() <= slice.size() && DimsFit(*filled, slice)) {
    return absl::OkStatus();
  }
  return context.InputError("ValueTensor",
                            absl::StrCat("a shape to repeat to ", DimsToString(slice)));
}

// The value, repeated, fills the slice.
absl::Status InferSetValue(InferContext& context) {
  const TensorType* x = context.Input("Input");
  if (x == nullptr || HasAttrInput(context)) return absl::OkStatus();
  if (!context.attrs().Ints("none_axes").empty()) {
    return context.AttrError("none_axes", "no axes", "some");
  }
  WEFT_ASSIGN_OR_RETURN(const Dims slice, SlicedDims(context, x->dims, "steps", "none_axes"));
  WEFT_RETURN_IF_ERROR(CheckFills(context, slice));
  context.SetOutput("Out", *x);
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
  OpSchema set_value = OpSchema("set_value")
                           .AttrIn("EndsTensorList", {"ends"}, kDuplicable)
                           .In("Input")
                           .AttrIn("StartsTensorList", {"starts"}, kDuplicable)
                           .AttrIn("StepsTensorList", {"steps"}, kDuplicable)
                           .In("ValueTensor", kOptional)
                           .Out("Out")
                           .Attr("axes", Longs{})
                           .Attr("decrease_axes", Longs{})
                           .Attr("dtype", static_cast<int>(DType::kFloat32))
                           .Attr("ends", Longs{})
                           .Attr("none_axes", Longs{})
                           .Attr("shape", Longs{})
                           .Attr("starts", Longs{})
                           .Attr("steps", Longs{})
                           .Infer(InferSetValue);
  schemas->Add(GradSchema(set_value, "set_value_grad",
                          {{"ValueTensor"}, {"Out"}, {"Input", "ValueTensor"}}, InferSetValueGrad));
  schemas->Add(std::move(set_value));
}

}  // namespace weft
