// Joins tensors along a dimension, and splits them.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Adds a new dimension of size `count` at attribute axis.
absl::StatusOr<TensorType> Stacked(const InferContext& context, TensorType layer, size_t count) {
  WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", layer.dims.size() + 1));
  layer.dims.insert(layer.dims.begin() + axis, static_cast<int64_t>(count));
  return layer;
}

absl::Status CheckLayer(const InferContext& context, const char* slot, size_t i,
                        const TensorType& first) {
  const TensorType* x = context.Input(slot, i);
  if (x == nullptr || (x->dtype == first.dtype && DimsFit(x->dims, first.dims))) {
    return absl::OkStatus();
  }
  return context.InputError(slot, i, absl::StrCat(ToString(first), " as the others"));
}

// All of one shape, along a new dimension.
absl::Status InferStack(InferContext& context, const TensorType& first) {
  const size_t count = context.NumInputs("X");
  for (size_t i = 1; i < count; ++i) {
    if (context.Input("X", i) == nullptr) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(CheckLayer(context, "X", i, first));
  }
  WEFT_ASSIGN_OR_RETURN(const TensorType out, Stacked(context, first, count));
  context.SetOutput("Y", out);
  return absl::OkStatus();
}

// The layers of X along a dimension, one per variable of slot `out`.
OpSchema::InferFn Unstacked(const char* out) {
  return IfKnown("X", [out](InferContext& context, const TensorType& x) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", x.dims.size()));
    const size_t count = context.NumOutputs(out);
    if (count > 0 && !DimFits(x.dims[axis], static_cast<int64_t>(count))) {
      return context.InputError("X", absl::StrCat(count, " layers along the axis"));
    }
    TensorType layer = x;
    layer.dims.erase(layer.dims.begin() + axis);
    for (size_t i = 0; i < count; ++i) context.SetOutput(out, i, layer);
    return absl::OkStatus();
  });
}

absl::Status InferUnstackGrad(InferContext& context, const TensorType& first) {
  const size_t count = context.NumInputs("Y@GRAD");
  for (size_t i = 1; i < count; ++i) {
    WEFT_RETURN_IF_ERROR(CheckLayer(context, "Y@GRAD", i, first));
  }
  WEFT_ASSIGN_OR_RETURN(const TensorType x, Stacked(context, first, count));
  context.SetOutput("X@GRAD", x);
  return absl::OkStatus();
}

// The inputs have one element type, and one shape except along the axis.
absl::StatusOr<absl::optional<TensorType>> Concatenated(const InferContext& context) {
  const TensorType* first = context.Input("X");
  // An axis that an input gives is unknown.
  if (first == nullptr || HasAttrInput(context)) return absl::optional<TensorType>();
  WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", first->dims.size()));
  TensorType out = *first;
  for (size_t i = 1; i < context.NumInputs("X"); ++i) {
    const TensorType* x = context.Input("X", i);
    if (x == nullptr) return absl::optional<TensorType>();
    Dims others = x->dims;
    if (others.size() == out.dims.size()) others[axis] = out.dims[axis];
    if (x->dtype != out.dtype || !DimsFit(others, out.dims)) {
      return context.InputError("X", i,
                                absl::StrCat(ToString(*first), " but for dimension ", axis));
    }
    const int64_t size = AddDim(out.dims[axis], x->dims[axis]);
    for (size_t d = 0; d < others.size(); ++d) out.dims[d] = std::max(out.dims[d], others[d]);
    out.dims[axis] = size;
  }
  return absl::optional<TensorType>(out);
}

absl::Status InferConcat(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> out, Concatenated(context));
  if (out.has_value()) context.SetOutput("Out", *out);
  return absl::OkStatus();
}

absl::Status CheckConcatGrad(InferContext& context) {
  const size_t gradients = context.NumOutputs("X@GRAD");
  if (gradients > 0 && gradients != context.NumInputs("X")) {
    return context.InputError("X", absl::StrCat(gradients, " variables, as many as X@GRAD has"));
  }
  WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> out, Concatenated(context));
  const TensorType* grad = context.Input("Out@GRAD");
  if (!out.has_value() || grad == nullptr) return absl::OkStatus();
  if (grad->dtype == out->dtype && DimsFit(grad->dims, out->dims)) return absl::OkStatus();
  return context.InputError("Out@GRAD", absl::StrCat(ToString(*out), " as Out"));
}

// The sizes of the parts of `size` elements along the axis: `num` equal ones, or the given
// sections. One section may be -1: the rest.
absl::StatusOr<std::vector<int64_t>> PartSizes(const InferContext& context, int64_t size) {
  const int64_t num = context.attrs().Int("num");
  if (num > 0) {
    if (size != -1 && size % num != 0) {
      return context.InputError("X", absl::StrCat(num, " equal parts along the axis"));
    }
    return std::vector<int64_t>(num, size == -1 ? -1 : size / num);
  }
  std::vector<int64_t> sections = context.attrs().Ints("sections");
  const auto rest = std::find(sections.begin(), sections.end(), -1);
  int64_t sum = 0;
  for (int64_t section : sections) sum += std::max<int64_t>(section, 0);
  const bool is_whole = size == -1 || (rest == sections.end() ? sum == size : sum <= size);
  const bool has_bad =
      std::any_of(sections.begin(), sections.end(), [](int64_t s) { return s < -1; });
  if (!is_whole || has_bad || std::count(sections.begin(), sections.end(), -1) > 1) {
    return context.AttrError("sections", absl::StrCat("parts of ", size, " elements"),
                             DimsToString(sections));
  }
  if (rest != sections.end() && size != -1) *rest = size - sum;
  return sections;
}

absl::Status InferSplit(InferContext& context, const TensorType& x) {
  // An axis or sections that an input gives are unknown.
  if (HasAttrInput(context)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", x.dims.size()));
  const size_t count = context.NumOutputs("Out");
  const int64_t num = context.attrs().Int("num");
  const size_t parts = num > 0 ? num : context.attrs().Ints("sections").size();
  if (parts != count) {
    return context.AttrError(num > 0 ? "num" : "sections",
                             absl::StrCat(count, " parts, as many as Out has variables"),
                             absl::StrCat(parts));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, PartSizes(context, x.dims[axis]));
  for (size_t i = 0; i < count; ++i) {
    TensorType part = x;
    part.dims[axis] = sizes[i];
    context.SetOutput("Out", i, part);
  }
  return absl::OkStatus();
}

// Before Paddle 2, it does not read X.
absl::Status InferStackGrad(InferContext& context) {
  if (context.HasInput("X")) return GradOf(IfKnown("X", InferStack))(context);
  const TensorType* y = context.Input("Y@GRAD");
  if (y == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", y->dims.size()));
  TensorType x = *y;
  x.dims.erase(x.dims.begin() + axis);
  for (size_t i = 0; i < context.NumOutputs("X@GRAD"); ++i) context.SetOutput("X@GRAD", i, x);
  return absl::OkStatus();
}

}  // namespace

void AddConcatSplitSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("stack", "X* -> Y")
                  .Attr("axis", 0)
                  .With(Trait::kLinear)
                  .Infer(IfKnown("X", InferStack))
                  .Batch({batch::Joined(/*adds=*/true), Powers::kTogether})
                  .Pir(),
              {{"X+"}, {"Y"}, {"X"}}, InferStackGrad);
  AddWithGrad(schemas,
              OpSchema("unstack", "X -> Y*")
                  .Attr("axis", 0)
                  .RequiredAttr("num", 0)
                  .With(Trait::kLinear)
                  .Infer(Unstacked("Y"))
                  .Batch({batch::Apart("X"), Powers::kFirst})
                  .Pir(),
              {{}, {"Y"}, {"X"}}, IfKnown("Y@GRAD", InferUnstackGrad));
  schemas->Add(OpSchema("unbind", "X -> Out*")
                   .Attr("axis", 0)
                   .With(Trait::kLinear)
                   .Infer(Unstacked("Out"))
                   .Batch({batch::Apart("X"), Powers::kFirst})
                   .Pir("(input:X)"));
  AddWithGrad(schemas,
              OpSchema("concat", "AxisTensor{axis}, X* -> Out")
                  .Attr("axis", 0)
                  .With(Trait::kLinear)
                  .Infer(InferConcat)
                  .Algebra(Algebra::kConcat)
                  .Batch({batch::Joined(/*adds=*/false), Powers::kTogether})
                  .Pir("(x, @axis)"),
              GradOfX(), InOrder({CheckConcatGrad, GradsLikeInputs()}));
  schemas->Add(OpSchema("split", "AxisTensor{axis}, SectionsTensorList*{sections}, X -> Out*")
                   .Attr("axis", 0)
                   .Attr("mkldnn_data_type", "float32")
                   .Attr("num", 0)
                   .AttrSincePaddle3("onednn_data_type", "")
                   .Attr("sections", Ints{})
                   .Attr("use_mkldnn", false)
                   .AttrSincePaddle3("use_onednn", false)
                   .With(Trait::kLinear)
                   .Infer(IfKnown("X", InferSplit))
                   .Algebra(Algebra::kSplitEqual)
                   .Batch({batch::Along("X", "axis"), Powers::kFirst})
                   .Pir("(x, @sections, @axis)")
                   .Pir("split_with_num(x, @axis)"));
}

}  // namespace weft
