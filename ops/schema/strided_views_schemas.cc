// Ops whose output is a strided view of the input.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_checks.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/out_dims.h"
#include "ops/schema/slice_range.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional, kLooseType = OpSchema::kLooseType;
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

absl::StatusOr<Dims> SliceDims(const InferContext& context, const Dims& x) {
  return SlicedDims(context, x, nullptr, "decrease_axis", /*must_be_one=*/true);
}

absl::StatusOr<Dims> StridedSliceDims(const InferContext& context, const Dims& x) {
  return SlicedDims(context, x, "strides", "decrease_axis", /*must_be_one=*/true);
}

OpSchema WithSliceInputs(OpSchema schema) {
  return std::move(schema)
      .AttrIn("EndsTensor", {"ends"})
      .AttrIn("EndsTensorList", {"ends"}, kDuplicable)
      .In("Input")
      .AttrIn("StartsTensor", {"starts"})
      .AttrIn("StartsTensorList", {"starts"}, kDuplicable)
      .Out("Out")
      .Attr("axes", Ints{})
      .Attr("decrease_axis", Ints{})
      .Attr("ends", Ints{})
      .Attr("infer_flags", Ints{})
      .Attr("starts", Ints{});
}

absl::StatusOr<Dims> CropDims(const InferContext& context, const Dims& x) {
  const std::vector<int64_t> offsets = context.attrs().Ints("offsets");
  const std::vector<int64_t> shape = context.attrs().Ints("shape");
  if (offsets.size() != x.size() || shape.size() != x.size()) {
    return context.AttrError("offsets", absl::StrCat(x.size(), " numbers, as in shape"),
                             DimsToString(offsets));
  }
  Dims dims;
  for (size_t d = 0; d < x.size(); ++d) {
    const int64_t size = shape[d] == -1 && x[d] != -1 ? x[d] - offsets[d] : shape[d];
    if (offsets[d] < 0 || size < -1 || (x[d] != -1 && offsets[d] + size > x[d])) {
      return context.AttrError("shape", absl::StrCat("a part of ", DimsToString(x)),
                               DimsToString(shape));
    }
    dims.push_back(size);
  }
  return dims;
}

// X with each dimension repeated; the shorter of the two is filled up with ones in front.
absl::StatusOr<Dims> RepeatedDims(const InferContext& context, Dims x, const char* attr) {
  std::vector<int64_t> times = context.attrs().Ints(attr);
  while (times.size() < x.size()) times.insert(times.begin(), 1);
  while (x.size() < times.size()) x.insert(x.begin(), 1);
  for (size_t d = 0; d < x.size(); ++d) {
    if (times[d] < 0) return context.AttrError(attr, "numbers of at least 0", DimsToString(times));
    x[d] = MulDim(x[d], times[d]);
  }
  return x;
}

absl::StatusOr<Dims> TileDims(const InferContext& context, const Dims& x) {
  return RepeatedDims(context, x, "repeat_times");
}

absl::StatusOr<Dims> ExpandTimesDims(const InferContext& context, const Dims& x) {
  return RepeatedDims(context, x, "expand_times");
}

// X repeated to a shape, in which -1 stands for the dimension of X.
absl::StatusOr<Dims> ExpandedDims(const InferContext& context, const Dims& x, const char* attr) {
  const std::vector<int64_t> shape = context.attrs().Ints(attr);
  Dims dims(shape.begin(), shape.end());
  const size_t missing = dims.size() - x.size();
  bool fits = dims.size() >= x.size();
  for (size_t d = 0; fits && d < dims.size(); ++d) {
    const int64_t from = d < missing ? 1 : x[d - missing];
    if (dims[d] == -1) {
      fits = d >= missing;
      dims[d] = from;
    }
    fits = fits && dims[d] >= -1 && (from == 1 || DimFits(from, dims[d]));
  }
  if (fits) return dims;
  return context.AttrError(attr, absl::StrCat("a shape to repeat ", DimsToString(x), " to"),
                           DimsToString(shape));
}

absl::StatusOr<Dims> ExpandDims(const InferContext& context, const Dims& x) {
  return ExpandedDims(context, x, "shape");
}

absl::Status InferExpandAs(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const TensorType* y = context.Input("Y");
  if (y == nullptr) {
    WEFT_ASSIGN_OR_RETURN(const Dims dims, ExpandedDims(context, x->dims, "target_shape"));
    context.SetOutput("Out", {x->dtype, dims});
    return absl::OkStatus();
  }
  const absl::optional<Dims> dims = BroadcastDims(y->dims, x->dims);
  if (!dims.has_value() || y->dims.size() < x->dims.size() || !DimsFit(*dims, y->dims)) {
    return context.InputError("X", absl::StrCat("a shape to repeat to ", DimsToString(y->dims)));
  }
  context.SetOutput("Out", {x->dtype, y->dims});
  return absl::OkStatus();
}

absl::StatusOr<Dims> RepeatInterleaveDims(const InferContext& context, const Dims& x) {
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        ResolveAxis(context, "dim", context.attrs().Int("dim"), x.size()));
  const int64_t repeats = context.attrs().Int("Repeats");
  if (repeats < 0) return context.AttrError("Repeats", "at least 0", absl::StrCat(repeats));
  Dims dims = x;
  dims[axis] = MulDim(x[axis], repeats);
  return dims;
}

absl::StatusOr<Dims> TransposedDims(const InferContext& context, const Dims& x) {
  Dims dims;
  std::vector<bool> taken(x.size(), false);
  const std::vector<int64_t> axes = context.attrs().Ints("axis");
  for (int64_t value : axes) {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", value, x.size()));
    if (taken[axis]) break;
    taken[axis] = true;
    dims.push_back(x[axis]);
  }
  if (dims.size() == x.size() && axes.size() == x.size()) return dims;
  return context.AttrError("axis",
                           absl::StrCat("a permutation of the dimensions of ", DimsToString(x)),
                           DimsToString(axes));
}

absl::StatusOr<Dims> FlippedDims(const InferContext& context, const Dims& x) {
  std::vector<bool> taken(x.size(), false);
  for (int64_t value : context.attrs().Ints("axis")) {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", value, x.size()));
    if (taken[axis]) return context.AttrError("axis", "each axis once", absl::StrCat(value));
    taken[axis] = true;
  }
  return x;
}

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

}  // namespace

void AddStridedViewsSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("transpose")
                  .In("X")
                  .Out("Out")
                  .RequiredAttr("axis", Ints{})
                  .With(Trait::kLinear)
                  .Infer(OutDims(TransposedDims)),
              {{"X", "Out"}, {"Out"}, {"X"}});
  for (const char* type : {"flip", "reverse"}) {
    schemas->Add(OpSchema(type)
                     .In("X")
                     .Out("Out")
                     .RequiredAttr("axis", Ints{})
                     .With(Trait::kLinear)
                     .Infer(OutDims(FlippedDims)));
  }
  const GradSlots grad = {{"Input"}, {"Out"}, {"Input"}};
  AddWithGrad(
      schemas,
      WithSliceInputs(OpSchema("slice")).With(Trait::kLinear).Infer(OutDims(SliceDims, "Input")),
      grad);
  AddWithGrad(schemas,
              WithSliceInputs(OpSchema("strided_slice")
                                  .AttrIn("StridesTensor", {"strides"})
                                  .AttrIn("StridesTensorList", {"strides"}, kDuplicable))
                  .Attr("strides", Ints{})
                  .With(Trait::kLinear)
                  .Infer(OutDims(StridedSliceDims, "Input")),
              grad);
  AddWithGrad(schemas,
              OpSchema("crop_tensor")
                  .AttrIn("Offsets", {"offsets"})
                  .AttrIn("OffsetsTensor", {"offsets"}, kDuplicable)
                  .AttrIn("Shape", {"shape"})
                  .AttrIn("ShapeTensor", {"shape"}, kDuplicable)
                  .In("X")
                  .Out("Out")
                  .Attr("offsets", Ints{})
                  .Attr("shape", Ints{})
                  .Infer(OutDims(CropDims)),
              GradOfX());
  AddWithGrad(schemas,
              OpSchema("tile")
                  .AttrIn("RepeatTimes", {"repeat_times"})
                  .In("X")
                  .AttrIn("repeat_times_tensor", {"repeat_times"}, kDuplicable)
                  .Out("Out")
                  .Attr("repeat_times", Ints{})
                  .With(Trait::kLinear)
                  .Infer(OutDims(TileDims)),
              GradOfX());
  AddWithGrad(schemas,
              OpSchema("expand")
                  .AttrIn("ExpandTimes", {"expand_times"})
                  .In("X")
                  .AttrIn("expand_times_tensor", {"expand_times"}, kDuplicable)
                  .Out("Out")
                  .Attr("expand_times", Ints{})
                  .With(Trait::kLinear)
                  .Infer(OutDims(ExpandTimesDims)),
              GradOfX());
  AddWithGrad(schemas,
              OpSchema("expand_v2")
                  .AttrIn("Shape", {"shape"})
                  .In("X")
                  .AttrIn("expand_shapes_tensor", {"shape"}, kDuplicable)
                  .Out("Out")
                  .Attr("shape", Ints{})
                  .With(Trait::kLinear)
                  .Infer(OutDims(ExpandDims)),
              GradOfX());
  AddWithGrad(schemas,
              OpSchema("expand_as_v2")
                  .In("X")
                  .In("Y", kOptional)
                  .Out("Out")
                  .Attr("target_shape", Ints{})
                  .Infer(InferExpandAs),
              GradOfX());
  AddWithGrad(schemas,
              OpSchema("repeat_interleave")
                  .In("RepeatsTensor", kOptional)
                  .In("X")
                  .Out("Out")
                  .Attr("Repeats", 1)
                  .Attr("dim", 0)
                  .Infer(OutDims(RepeatInterleaveDims)),
              GradOfX());
  schemas->Add(OpSchema("transpose2")
                   .In("X")
                   .Out("Out")
                   .Out("XShape", kOptional | kLooseType)
                   .RequiredAttr("axis", Ints{})
                   .With(Trait::kLinear)
                   .Infer(InferTranspose));
  schemas->Add(OpSchema("transpose2_grad")
                   .In("Out@GRAD")
                   .In("XShape")
                   .Out("X@GRAD")
                   .RequiredAttr("axis", Ints{})
                   .Infer(InferTransposeGrad));
}

}  // namespace weft
