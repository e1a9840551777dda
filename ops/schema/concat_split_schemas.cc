// Tensors joined along a dimension, and cut up.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional;
constexpr int kDuplicable = OpSchema::kDuplicable;

// All of one shape, along a new dimension.
absl::Status InferStack(InferContext& context) {
  const TensorType* first = context.Input("X");
  if (first == nullptr) return absl::OkStatus();
  TensorType out = *first;
  for (size_t i = 1; i < context.NumInputs("X"); ++i) {
    const TensorType* x = context.Input("X", i);
    if (x == nullptr) return absl::OkStatus();
    if (x->dtype != out.dtype || !DimsFit(x->dims, out.dims)) {
      return context.InputError("X", i, absl::StrCat(ToString(out), " as the others"));
    }
  }
  WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", context.attrs().Int("axis"),
                                                    out.dims.size() + 1));
  out.dims.insert(out.dims.begin() + axis, static_cast<int64_t>(context.NumInputs("X")));
  context.SetOutput("Y", out);
  return absl::OkStatus();
}

// The layers along a dimension, one per variable.
absl::Status InferUnstack(InferContext& context, const char* in, const char* out) {
  const TensorType* x = context.Input(in);
  if (x == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        ResolveAxis(context, "axis", context.attrs().Int("axis"), x->dims.size()));
  const size_t count = context.NumOutputs(out);
  if (count > 0 && !DimFits(x->dims[axis], static_cast<int64_t>(count))) {
    return context.InputError(in, absl::StrCat(count, " layers along the axis"));
  }
  TensorType layer = *x;
  layer.dims.erase(layer.dims.begin() + axis);
  for (size_t i = 0; i < count; ++i) context.SetOutput(out, i, layer);
  return absl::OkStatus();
}

absl::Status InferUnstackGrad(InferContext& context) {
  const TensorType* first = context.Input("Y@GRAD");
  if (first == nullptr) return absl::OkStatus();
  TensorType out = *first;
  for (size_t i = 1; i < context.NumInputs("Y@GRAD"); ++i) {
    const TensorType* grad = context.Input("Y@GRAD", i);
    if (grad != nullptr && (grad->dtype != out.dtype || !DimsFit(grad->dims, out.dims))) {
      return context.InputError("Y@GRAD", i, absl::StrCat(ToString(out), " as the others"));
    }
  }
  WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", context.attrs().Int("axis"),
                                                    out.dims.size() + 1));
  out.dims.insert(out.dims.begin() + axis, static_cast<int64_t>(context.NumInputs("Y@GRAD")));
  context.SetOutput("X@GRAD", out);
  return absl::OkStatus();
}

// All of one element type, and of one shape but along the axis.
absl::StatusOr<absl::optional<TensorType>> Concatenated(const InferContext& context) {
  const TensorType* first = context.Input("X");
  // An axis that is computed is not known here.
  if (first == nullptr || HasAttrInput(context)) return absl::optional<TensorType>();
  WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", context.attrs().Int("axis"),
                                                    first->dims.size()));
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
// sections, of which one may be -1 (the rest).
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

absl::Status InferSplit(InferContext& context) {
  const TensorType* x = context.Input("X");
  // An axis or sections that are computed are not known here.
  if (x == nullptr || HasAttrInput(context)) {
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        ResolveAxis(context, "axis", context.attrs().Int("axis"), x->dims.size()));
  const size_t count = context.NumOutputs("Out");
  const int64_t num = context.attrs().Int("num");
  const size_t parts = num > 0 ? num : context.attrs().Ints("sections").size();
  if (parts != count) {
    return context.AttrError(num > 0 ? "num" : "sections",
                             absl::StrCat(count, " parts, as many as Out has variables"),
                             absl::StrCat(parts));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, PartSizes(context, x->dims[axis]));
  for (size_t i = 0; i < count; ++i) {
    TensorType part = *x;
    part.dims[axis] = sizes[i];
    context.SetOutput("Out", i, part);
  }
  return absl::OkStatus();
}

}  // namespace

void AddConcatSplitSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("stack")
                  .In("X", kDuplicable)
                  .Out("Y")
                  .Attr("axis", 0)
                  .With(Trait::kLinear)
                  .Infer(InferStack),
              {{"X"}, {"Y"}, {"X"}});
  OpSchema unstack =
      OpSchema("unstack")
          .In("X")
          .Out("Y", kDuplicable)
          .Attr("axis", 0)
          .RequiredAttr("num", 0)
          .With(Trait::kLinear)
          .Infer([](InferContext& context) { return InferUnstack(context, "X", "Y"); });
  schemas->Add(GradSchema(unstack, "unstack_grad", {{}, {"Y"}, {"X"}}, InferUnstackGrad));
  schemas->Add(std::move(unstack));
  schemas->Add(OpSchema("unbind")
                   .In("X")
                   .Out("Out", kDuplicable)
                   .Attr("axis", 0)
                   .With(Trait::kLinear)
                   .Infer([](InferContext& context) { return InferUnstack(context, "X", "Out"); }));
  schemas->Add(OpSchema("concat")
                   .AttrIn("AxisTensor", {"axis"})
                   .In("X", kDuplicable)
                   .Out("Out")
                   .Attr("axis", 0)
                   .With(Trait::kLinear)
                   .Infer(InferConcat));
  schemas->Add(OpSchema("concat_grad")
                   .AttrIn("AxisTensor", {"axis"})
                   .In("Out@GRAD")
                   .In("X", kDuplicable)
                   .Out("X@GRAD", kDuplicable | kOptional)
                   .Attr("axis", 0)
                   .Infer(InOrder({CheckConcatGrad, GradsLikeInputs()})));
  schemas->Add(OpSchema("split")
                   .AttrIn("AxisTensor", {"axis"})
                   .AttrIn("SectionsTensorList", {"sections"}, kDuplicable)
                   .In("X")
                   .Out("Out", kDuplicable)
                   .Attr("axis", 0)
                   .Attr("mkldnn_data_type", "float32")
                   .Attr("num", 0)
                   .Attr("sections", Ints{})
                   .Attr("use_mkldnn", false)
                   .With(Trait::kLinear)
                   .Infer(InferSplit));
}

}  // namespace weft
