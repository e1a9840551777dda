// Ops that move or copy elements and compute nothing.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional;
constexpr int kDuplicable = OpSchema::kDuplicable;

// --- reshape2 ------------------------------------------------------------------------------------

// 0 copies the dimension of X at the same place, -1 (at most one) takes what is left; it stays
// unknown where a dimension of X is.
absl::StatusOr<Dims> ReshapedDims(const InferContext& context, const Dims& x) {
  const std::vector<int64_t> shape = context.attrs().Ints("shape");
  Dims dims(shape.begin(), shape.end());
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < -1 || (dims[i] == 0 && i >= x.size())) {
      return context.AttrError("shape", absl::StrCat("a shape for ", DimsToString(x)),
                               DimsToString(shape));
    }
    if (dims[i] == 0) dims[i] = x[i];
  }
  const int64_t elements = Product(x);
  const auto rest = std::find(shape.begin(), shape.end(), -1);
  if (rest != shape.end()) {
    int64_t& dim = dims[rest - shape.begin()];
    dim = 1;
    const int64_t others = Product(dims);
    const bool has_two = std::find(rest + 1, shape.end(), -1) != shape.end();
    if (has_two || (elements != -1 && others > 0 && elements % others != 0)) {
      return context.AttrError("shape", absl::StrCat("a shape for ", DimsToString(x)),
                               DimsToString(shape));
    }
    dim = elements == -1 || others == -1 ? -1 : others == 0 ? 0 : elements / others;
  }
  if (!DimFits(Product(dims), elements)) {
    return context.AttrError("shape", absl::StrCat("as many elements as ", DimsToString(x)),
                             DimsToString(shape));
  }
  return dims;
}

absl::Status InferReshape(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  context.SetOutput("XShape", ToXShape(*x));
  // A shape that is computed is not known here.
  if (HasAttrInput(context)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Dims dims, ReshapedDims(context, x->dims));
  context.SetOutput("Out", {x->dtype, dims});
  return absl::OkStatus();
}

// --- transpose2 ----------------------------------------------------------------------------------

// These dims in the order of attribute `axis`.
absl::StatusOr<Dims> Transposed(const InferContext& context, const Dims& dims) {
  const std::vector<int64_t> axes = context.attrs().Ints("axis");
  Dims transposed;
  std::vector<bool> taken(dims.size(), false);
  for (int64_t value : axes) {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", value, dims.size()));
    if (taken[axis]) break;
    taken[axis] = true;
    transposed.push_back(dims[axis]);
  }
  if (axes.size() != dims.size() || transposed.size() != axes.size()) {
    return context.AttrError(
        "axis", absl::StrCat("a permutation of the dimensions of ", DimsToString(dims)),
        DimsToString(axes));
  }
  return transposed;
}

absl::Status InferTranspose(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Dims dims, Transposed(context, x->dims));
  context.SetOutput("Out", {x->dtype, dims});
  context.SetOutput("XShape", ToXShape(*x));
  return absl::OkStatus();
}

absl::Status InferTransposeGrad(InferContext& context) {
  WEFT_RETURN_IF_ERROR(InferGradFromXShape(context));
  const TensorType* xshape = context.Input("XShape");
  const TensorType* grad = context.Input("Out@GRAD");
  if (xshape == nullptr || grad == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Dims dims,
                        Transposed(context, Dims(xshape->dims.begin() + 1, xshape->dims.end())));
  if (DimsFit(grad->dims, dims)) return absl::OkStatus();
  return context.InputError("Out@GRAD", absl::StrCat("dimensions ", DimsToString(dims)));
}

// --- flatten_contiguous_range --------------------------------------------------------------------

absl::Status InferFlatten(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  context.SetOutput("XShape", ToXShape(*x));
  if (x->dims.empty()) {
    context.SetOutput("Out", {x->dtype, {1}});
    return absl::OkStatus();
  }
  const size_t rank = x->dims.size();
  const int64_t start_axis = context.attrs().Int("start_axis");
  const int64_t stop_axis = context.attrs().Int("stop_axis");
  WEFT_ASSIGN_OR_RETURN(const int start, ResolveAxis(context, "start_axis", start_axis, rank));
  WEFT_ASSIGN_OR_RETURN(const int stop, ResolveAxis(context, "stop_axis", stop_axis, rank));
  if (stop < start) {
    return context.AttrError("stop_axis", absl::StrCat(start, " (start_axis) or more"),
                             absl::StrCat(stop));
  }
  TensorType out = {x->dtype, Dims(x->dims.begin(), x->dims.begin() + start)};
  out.dims.push_back(Product(absl::MakeSpan(x->dims).subspan(start, stop - start + 1)));
  out.dims.insert(out.dims.end(), x->dims.begin() + stop + 1, x->dims.end());
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

// --- concat, split -------------------------------------------------------------------------------

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

void AddShapeSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("assign")
                   .In("X", kOptional)
                   .Out("Out")
                   .With(Trait::kElementwise)
                   .With(Trait::kLinear)
                   .With(Trait::kRowSplittable)
                   .Infer(OutputsLike("X")));
  // Copies to another place (0 host memory, 1 device memory, ...).
  schemas->Add(OpSchema("memcpy")
                   .In("X")
                   .Out("Out")
                   .RequiredAttr("dst_place_type", 0)
                   .With(Trait::kElementwise)
                   .With(Trait::kLinear)
                   .With(Trait::kRowSplittable)
                   .Infer(OutputsLike("X")));

  schemas->Add(OpSchema("share_data").In("X").Out("Out").Infer(OutputsLike("X")));

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

  schemas->Add(OpSchema("reshape2")
                   .AttrIn("Shape", {"shape"})
                   .AttrIn("ShapeTensor", {"shape"}, kDuplicable)
                   .In("X")
                   .Out("Out")
                   .Out("XShape", kOptional)
                   .Attr("shape", Ints{})
                   .With(Trait::kLinear)
                   .Infer(InferReshape));
  AddWithGrad(schemas,
              OpSchema("reshape")
                  .AttrIn("Shape", {"shape"})
                  .AttrIn("ShapeTensor", {"shape"}, kDuplicable)
                  .In("X")
                  .Out("Out")
                  .Attr("shape", Ints{})
                  .With(Trait::kLinear)
                  .Infer(InferReshape),
              {{"X", "Out"}, {"Out"}, {"X"}});
  schemas->Add(OpSchema("reshape2_grad")
                   .In("Out@GRAD")
                   .In("XShape")
                   .Out("X@GRAD")
                   .Attr("shape", Ints{})
                   .Infer(InferGradFromXShape));
  schemas->Add(OpSchema("transpose2")
                   .In("X")
                   .Out("Out")
                   .Out("XShape", kOptional)
                   .RequiredAttr("axis", Ints{})
                   .With(Trait::kLinear)
                   .Infer(InferTranspose));
  schemas->Add(OpSchema("transpose2_grad")
                   .In("Out@GRAD")
                   .In("XShape")
                   .Out("X@GRAD")
                   .RequiredAttr("axis", Ints{})
                   .Infer(InferTransposeGrad));
  schemas->Add(OpSchema("flatten_contiguous_range")
                   .In("X")
                   .Out("Out")
                   .Out("XShape", kOptional)
                   .Attr("start_axis", 1)
                   .Attr("stop_axis", 1)
                   .With(Trait::kLinear)
                   .Infer(InferFlatten));
  schemas->Add(OpSchema("flatten_contiguous_range_grad")
                   .In("Out@GRAD")
                   .In("XShape")
                   .Out("X@GRAD")
                   .Attr("start_axis", 1)
                   .Attr("stop_axis", 1)
                   .Infer(InferGradFromXShape));
}

}  // namespace weft
