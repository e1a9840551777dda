// Ops that arrange the elements of a tensor in another way: slices, repetitions, stacks, paddings.
// (Some more are in shape_schemas.cc.)
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/slice_range.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional;
constexpr int kDuplicable = OpSchema::kDuplicable;

// An inference function that tells the dims of Out from those of X.
using DimsFn = absl::StatusOr<Dims> (*)(const InferContext&, const Dims& x);

OpSchema::InferFn OutDims(DimsFn dims_of, const char* x_slot = "X") {
  return [dims_of, x_slot](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input(x_slot);
    if (x == nullptr) return absl::OkStatus();
    context.SetOutput("XShape", ToXShape(*x));
    // Attributes that are computed are not known here.
    for (const SlotSchema& slot : context.schema().inputs()) {
      if (slot.optional && context.HasInput(slot.name)) return absl::OkStatus();
    }
    WEFT_ASSIGN_OR_RETURN(const Dims dims, dims_of(context, x->dims));
    context.SetOutput("Out", {x->dtype, dims});
    return absl::OkStatus();
  };
}

const GradSlots kGradOfX = {{"X"}, {"Out"}, {"X"}};

// --- Slices --------------------------------------------------------------------------------------

absl::Status CheckSameLength(const InferContext& context, const char* attr, size_t length) {
  const size_t found = context.attrs().Ints(attr).size();
  if (found == length) return absl::OkStatus();
  return context.AttrError(attr, absl::StrCat(length, " numbers, one per axis"),
                           absl::StrCat(found));
}

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

// --- Repetitions ---------------------------------------------------------------------------------

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

// All repeated to one shape.
absl::Status InferBroadcastTensors(InferContext& context) {
  Dims dims;
  for (size_t i = 0; i < context.NumInputs("X"); ++i) {
    const TensorType* x = context.Input("X", i);
    if (x == nullptr) return absl::OkStatus();
    const absl::optional<Dims> both = BroadcastDims(dims, x->dims);
    if (!both.has_value()) {
      return context.InputError(
          "X", i, absl::StrCat("dimensions that broadcast with ", DimsToString(dims)));
    }
    dims = *both;
  }
  for (size_t i = 0; i < context.NumInputs("X"); ++i) {
    context.SetOutput("Out", i, {context.Input("X", i)->dtype, dims});
  }
  return absl::OkStatus();
}

// Vectors, each along a dimension of its own.
absl::Status InferMeshgrid(InferContext& context, const char* out) {
  Dims dims;
  for (size_t i = 0; i < context.NumInputs("X"); ++i) {
    const TensorType* x = context.Input("X", i);
    if (x == nullptr) return absl::OkStatus();
    if (x->dims.size() > 1) return context.InputError("X", i, "one dimension");
    dims.push_back(x->dims.empty() ? 1 : x->dims[0]);
  }
  for (size_t i = 0; i < context.NumInputs("X"); ++i) {
    context.SetOutput(out, i, {context.Input("X", i)->dtype, dims});
  }
  return absl::OkStatus();
}

// --- Dimensions ----------------------------------------------------------------------------------

// Without the dimensions of 1 among the axes; of all where none is named.
absl::StatusOr<Dims> SqueezedDims(const InferContext& context, const Dims& x) {
  const std::vector<int64_t> axes = context.attrs().Ints("axes");
  std::vector<bool> goes(x.size(), axes.empty());
  for (int64_t value : axes) {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axes", value, x.size()));
    goes[axis] = true;
  }
  Dims dims;
  for (size_t d = 0; d < x.size(); ++d) {
    if (!goes[d] || x[d] != 1) dims.push_back(x[d]);
  }
  return dims;
}

// With new dimensions of 1, inserted one after the other.
absl::StatusOr<Dims> UnsqueezedDims(const InferContext& context, const Dims& x) {
  Dims dims = x;
  for (int64_t value : context.attrs().Ints("axes")) {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axes", value, dims.size() + 1));
    dims.insert(dims.begin() + axis, 1);
  }
  return dims;
}

// A matrix: dimensions before the axis are its rows.
absl::StatusOr<Dims> FlattenedDims(const InferContext& context, const Dims& x) {
  const int64_t axis = context.attrs().Int("axis"), rank = x.size();
  if (axis < -rank || axis > rank) {
    return context.AttrError("axis", absl::StrCat("at most ", rank), absl::StrCat(axis));
  }
  const auto dims = absl::MakeConstSpan(x);
  const size_t at = axis < 0 ? axis + rank : axis;
  return Dims{Product(dims.first(at)), Product(dims.subspan(at))};
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

absl::StatusOr<Dims> RolledDims(const InferContext& context, const Dims& x) {
  const std::vector<int64_t> axes = context.attrs().Ints("axis");
  WEFT_RETURN_IF_ERROR(
      CheckSameLength(context, "shifts", std::max<size_t>(axes.size(), axes.empty() ? 1 : 0)));
  for (int64_t value : axes) {
    WEFT_RETURN_IF_ERROR(ResolveAxis(context, "axis", value, x.size()).status());
  }
  return x;
}

// --- Stacks --------------------------------------------------------------------------------------

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

// --- Paddings ------------------------------------------------------------------------------------

// Dimensions plus, or (sign -1) minus, what is added before and after.
absl::StatusOr<Dims> PaddedDims(const InferContext& context, const Dims& x, int sign) {
  const std::vector<int64_t> paddings = context.attrs().Ints("paddings");
  WEFT_RETURN_IF_ERROR(CheckSameLength(context, "paddings", 2 * x.size()));
  Dims dims = x;
  for (size_t d = 0; d < x.size(); ++d) {
    if (paddings[2 * d] < 0 || paddings[2 * d + 1] < 0) {
      return context.AttrError("paddings", "numbers of at least 0", DimsToString(paddings));
    }
    if (x[d] != -1) dims[d] += sign * (paddings[2 * d] + paddings[2 * d + 1]);
    if (dims[d] < -1) return context.InputError("Out@GRAD", "dimensions larger than the paddings");
  }
  return dims;
}

absl::Status InferPadGrad(InferContext& context) {
  const TensorType* grad = context.Input("Out@GRAD");
  if (grad == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Dims dims, PaddedDims(context, grad->dims, -1));
  context.SetOutput("X@GRAD", {grad->dtype, dims});
  return absl::OkStatus();
}

// --- Diagonals -----------------------------------------------------------------------------------

int64_t DiagonalSize(int64_t rows, int64_t columns, int64_t offset) {
  if (rows == -1 || columns == -1) return -1;
  const int64_t row = std::max<int64_t>(-offset, 0), column = std::max<int64_t>(offset, 0);
  return std::max<int64_t>(0, std::min(rows - row, columns - column));
}

absl::StatusOr<Dims> DiagDims(const InferContext& context, const Dims& x) {
  const int64_t offset = context.attrs().Int("offset");
  if (x.size() == 2) return Dims{DiagonalSize(x[0], x[1], offset)};
  if (x.size() > 1) return context.InputError("X", "one or two dimensions");
  const int64_t size = AddDim(x.empty() ? 1 : x[0], std::abs(offset));
  return Dims{size, size};
}

absl::StatusOr<Dims> TraceDims(const InferContext& context, const Dims& x) {
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const int a, ResolveAxis(context, "axis1", attrs.Int("axis1"), x.size()));
  WEFT_ASSIGN_OR_RETURN(const int b, ResolveAxis(context, "axis2", attrs.Int("axis2"), x.size()));
  if (a == b) return context.AttrError("axis2", "another axis than axis1", absl::StrCat(b));
  Dims dims;
  for (size_t d = 0; d < x.size(); ++d) {
    if (static_cast<int>(d) != a && static_cast<int>(d) != b) dims.push_back(x[d]);
  }
  return dims;
}

// The dimensions that trace leaves, and the diagonal.
absl::StatusOr<Dims> DiagonalDims(const InferContext& context, const Dims& x) {
  WEFT_ASSIGN_OR_RETURN(Dims dims, TraceDims(context, x));
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const int a, ResolveAxis(context, "axis1", attrs.Int("axis1"), x.size()));
  WEFT_ASSIGN_OR_RETURN(const int b, ResolveAxis(context, "axis2", attrs.Int("axis2"), x.size()));
  const int64_t offset = attrs.Int("offset");
  const int64_t rows = x[a] + std::min<int64_t>(offset, 0);
  const int64_t columns = x[b] - std::max<int64_t>(offset, 0);
  const bool known = x[a] != -1 && x[b] != -1;
  dims.push_back(known ? std::max<int64_t>(0, std::min(rows, columns)) : -1);
  return dims;
}

// Matrices in two new dimensions, dim1 and dim2, with the last dimension on a diagonal.
absl::StatusOr<Dims> DiagEmbedDims(const InferContext& context, const Dims& x) {
  if (x.empty()) return context.InputError("Input", "at least one dimension");
  const OpAttrs& attrs = context.attrs();
  const size_t rank = x.size() + 1;
  WEFT_ASSIGN_OR_RETURN(const int a, ResolveAxis(context, "dim1", attrs.Int("dim1"), rank));
  WEFT_ASSIGN_OR_RETURN(const int b, ResolveAxis(context, "dim2", attrs.Int("dim2"), rank));
  if (a == b) return context.AttrError("dim2", "another dimension than dim1", absl::StrCat(b));
  const int64_t offset = attrs.Int("offset");
  if (offset < -kMaxElements || offset > kMaxElements) {
    return context.AttrError("offset", "a number of columns", absl::StrCat(offset));
  }
  Dims dims(x.begin(), x.end() - 1);
  const int64_t size = x.back() == -1 ? -1 : AddDim(x.back(), std::abs(offset));
  dims.insert(dims.begin() + std::min(a, b), size);
  dims.insert(dims.begin() + std::max(a, b), size);
  return dims;
}

// --- Channels ------------------------------------------------------------------------------------

// Channels become r x r neighbours.
OpSchema::InferFn PixelShuffle(const char* factor, const char* x_slot, const char* out_slot) {
  return [=](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input(x_slot);
    if (x == nullptr) return absl::OkStatus();
    if (x->dims.size() != 4) return context.InputError(x_slot, "four dimensions");
    const int64_t r = context.attrs().Int(factor);
    const bool last = context.attrs().String("data_format") == "NHWC";
    TensorType out = *x;
    int64_t& channels = out.dims[last ? 3 : 1];
    if (r < 1 || (channels != -1 && channels % MulDim(r, r) != 0)) {
      return context.InputError(x_slot, absl::StrCat("a multiple of ", r, " x ", r, " channels"));
    }
    if (channels != -1) channels /= r * r;
    for (size_t d : {last ? 1 : 2, last ? 2 : 3}) out.dims[d] = MulDim(x->dims[d], r);
    context.SetOutput(out_slot, out);
    return absl::OkStatus();
  };
}

// r x r neighbours become channels.
OpSchema::InferFn PixelUnshuffle(const char* factor, const char* x_slot, const char* out_slot) {
  return [=](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input(x_slot);
    if (x == nullptr) return absl::OkStatus();
    if (x->dims.size() != 4) return context.InputError(x_slot, "four dimensions");
    const int64_t r = context.attrs().Int(factor);
    const bool last = context.attrs().String("data_format") == "NHWC";
    TensorType out = *x;
    out.dims[last ? 3 : 1] = MulDim(out.dims[last ? 3 : 1], MulDim(r, r));
    for (size_t d : {last ? 1 : 2, last ? 2 : 3}) {
      if (r < 1 || (out.dims[d] != -1 && out.dims[d] % r != 0)) {
        return context.InputError(x_slot, absl::StrCat("a multiple of ", r, " rows and columns"));
      }
      if (out.dims[d] != -1) out.dims[d] /= r;
    }
    context.SetOutput(out_slot, out);
    return absl::OkStatus();
  };
}

OpSchema::InferFn ChannelGroups(const char* attr, const char* x_slot, const char* out_slot) {
  return [=](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input(x_slot);
    if (x == nullptr) return absl::OkStatus();
    if (x->dims.size() != 4) return context.InputError(x_slot, "four dimensions");
    const int64_t group = context.attrs().Int(attr);
    const bool last =
        context.attrs().Has("data_format") && context.attrs().String("data_format") == "NHWC";
    const int64_t channels = x->dims[last ? 3 : 1];
    if (group < 1 || (channels != -1 && channels % group != 0)) {
      return context.InputError(x_slot, absl::StrCat("a multiple of ", group, " channels"));
    }
    context.SetOutput(out_slot, *x);
    return absl::OkStatus();
  };
}

OpSchema::InferFn Frames(const char* x_slot, const char* out_slot) {
  return [=](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input(x_slot);
    if (x == nullptr) return absl::OkStatus();
    if (x->dims.size() != 4) return context.InputError(x_slot, "four dimensions");
    const int64_t frames = context.attrs().Int("seg_num");
    if (frames < 1 || (x->dims[0] != -1 && x->dims[0] % frames != 0)) {
      return context.InputError(x_slot, absl::StrCat("rows in groups of ", frames, " frames"));
    }
    const double ratio = context.attrs().Float("shift_ratio");
    if (!(ratio >= 0 && ratio <= 0.5)) {
      return context.AttrError("shift_ratio", "0 to 0.5", absl::StrCat(ratio));
    }
    context.SetOutput(out_slot, *x);
    return absl::OkStatus();
  };
}

// --- Rows ----------------------------------------------------------------------------------------

// An op whose gradient knows the dims of X from XShape.
void AddWithXShape(OpSchemaTable* schemas, OpSchema op) {
  std::move(op).Out("Out").Out("XShape", kOptional).With(Trait::kLinear);
  schemas->Add(
      GradSchema(op, op.type() + "_grad", {{"XShape"}, {"Out"}, {"X"}}, InferGradFromXShape));
  schemas->Add(std::move(op));
}

void AddDimensions(OpSchemaTable* schemas) {
  AddWithXShape(schemas,
                OpSchema("squeeze2").In("X").Attr("axes", Ints{}).Infer(OutDims(SqueezedDims)));
  AddWithXShape(schemas, OpSchema("unsqueeze2")
                             .AttrIn("AxesTensor", {"axes"})
                             .AttrIn("AxesTensorList", {"axes"}, kDuplicable)
                             .In("X")
                             .RequiredAttr("axes", Ints{})
                             .Infer(OutDims(UnsqueezedDims)));
  AddWithXShape(schemas,
                OpSchema("flatten2").In("X").Attr("axis", 1).Infer(OutDims(FlattenedDims)));
  // The forms without XShape, of older programs.
  AddWithGrad(
      schemas,
      OpSchema("squeeze").In("X").Out("Out").Attr("axes", Ints{}).Infer(OutDims(SqueezedDims)),
      kGradOfX);
  AddWithGrad(schemas,
              OpSchema("unsqueeze")
                  .In("X")
                  .Out("Out")
                  .RequiredAttr("axes", Ints{})
                  .Infer(OutDims(UnsqueezedDims)),
              kGradOfX);
  AddWithGrad(schemas,
              OpSchema("flatten").In("X").Out("Out").Attr("axis", 1).Infer(OutDims(FlattenedDims)),
              kGradOfX);
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
  AddWithGrad(schemas,
              OpSchema("roll")
                  .AttrIn("ShiftsTensor", {"shifts"})
                  .In("X")
                  .Out("Out")
                  .Attr("axis", Longs{})
                  .Attr("shifts", Longs{})
                  .With(Trait::kLinear)
                  .Infer(OutDims(RolledDims)),
              kGradOfX);
}

void AddSlices(OpSchemaTable* schemas) {
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
              kGradOfX);
  OpSchema set_value = OpSchema("set_value")
                           .AttrIn("EndsTensorList", {"ends"}, kDuplicable)
                           .In("Input")
                           .AttrIn("StartsTensorList", {"starts"}, kDuplicable)
                           .AttrIn("StepsTensorList", {"steps"}, kDuplicable)
                           .In("ValueTensor")
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

void AddRepetitions(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("tile")
                  .AttrIn("RepeatTimes", {"repeat_times"})
                  .In("X")
                  .AttrIn("repeat_times_tensor", {"repeat_times"}, kDuplicable)
                  .Out("Out")
                  .Attr("repeat_times", Ints{})
                  .With(Trait::kLinear)
                  .Infer(OutDims(TileDims)),
              kGradOfX);
  AddWithGrad(schemas,
              OpSchema("expand")
                  .AttrIn("ExpandTimes", {"expand_times"})
                  .In("X")
                  .AttrIn("expand_times_tensor", {"expand_times"}, kDuplicable)
                  .Out("Out")
                  .Attr("expand_times", Ints{})
                  .With(Trait::kLinear)
                  .Infer(OutDims(ExpandTimesDims)),
              kGradOfX);
  AddWithGrad(schemas,
              OpSchema("expand_v2")
                  .AttrIn("Shape", {"shape"})
                  .In("X")
                  .AttrIn("expand_shapes_tensor", {"shape"}, kDuplicable)
                  .Out("Out")
                  .Attr("shape", Ints{})
                  .With(Trait::kLinear)
                  .Infer(OutDims(ExpandDims)),
              kGradOfX);
  AddWithGrad(schemas,
              OpSchema("expand_as_v2")
                  .In("X")
                  .In("Y", kOptional)
                  .Out("Out")
                  .Attr("target_shape", Ints{})
                  .Infer(InferExpandAs),
              kGradOfX);
  AddWithGrad(schemas,
              OpSchema("repeat_interleave")
                  .In("RepeatsTensor", kOptional)
                  .In("X")
                  .Out("Out")
                  .Attr("Repeats", 1)
                  .Attr("dim", 0)
                  .Infer(OutDims(RepeatInterleaveDims)),
              kGradOfX);
  AddWithGrad(schemas,
              OpSchema("broadcast_tensors")
                  .In("X", kDuplicable)
                  .Out("Out", kDuplicable)
                  .Infer(InferBroadcastTensors),
              kGradOfX);
  schemas->Add(OpSchema("meshgrid")
                   .In("X", kDuplicable)
                   .Out("Out", kDuplicable)
                   .Infer([](InferContext& context) { return InferMeshgrid(context, "Out"); }));
  schemas->Add(
      OpSchema("meshgrid_grad")
          .In("X", kDuplicable)
          .In("outputs@GRAD", kDuplicable)
          .Out("X@GRAD", kDuplicable)
          .Infer(GradOf([](InferContext& context) { return InferMeshgrid(context, "outputs"); })));
}

void AddStacks(OpSchemaTable* schemas) {
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
}

void AddOthers(OpSchemaTable* schemas) {
  OpSchema pad = OpSchema("pad")
                     .In("X")
                     .Out("Out")
                     .Attr("pad_value", 0.0f)
                     .RequiredAttr("paddings", Ints{})
                     .Infer(OutDims([](const InferContext& context, const Dims& x) {
                       return PaddedDims(context, x, 1);
                     }));
  schemas->Add(GradSchema(pad, "pad_grad", {{}, {"Out"}, {"X"}}, InferPadGrad));
  schemas->Add(std::move(pad));
  AddWithGrad(schemas,
              OpSchema("diag_v2")
                  .In("X")
                  .Out("Out")
                  .Attr("offset", 0)
                  .Attr("padding_value", 0.0f)
                  .Infer(OutDims(DiagDims)),
              kGradOfX);
  schemas->Add(OpSchema("diag_embed")
                   .In("Input")
                   .Out("Out")
                   .Attr("dim1", -2)
                   .Attr("dim2", -1)
                   .Attr("offset", 0)
                   .Infer(OutDims(DiagEmbedDims, "Input")));
  AddWithGrad(schemas,
              OpSchema("diagonal")
                  .In("Input")
                  .Out("Out")
                  .Attr("axis1", 0)
                  .Attr("axis2", 1)
                  .Attr("offset", 0)
                  .Infer(OutDims(DiagonalDims, "Input")),
              {{"Input"}, {"Out"}, {"Input"}});
  AddWithGrad(schemas,
              OpSchema("trace")
                  .In("Input")
                  .Out("Out")
                  .Attr("axis1", -2)
                  .Attr("axis2", -1)
                  .Attr("offset", 0)
                  .Infer(OutDims(TraceDims, "Input")),
              {{"Input"}, {"Out"}, {"Input"}});
  OpSchema shuffle = OpSchema("pixel_shuffle")
                         .In("X")
                         .Out("Out")
                         .Attr("data_format", "NCHW")
                         .Attr("upscale_factor", 1)
                         .Infer(PixelShuffle("upscale_factor", "X", "Out"));
  schemas->Add(GradSchema(shuffle, "pixel_shuffle_grad", {{}, {"Out"}, {"X"}},
                          PixelUnshuffle("upscale_factor", "Out@GRAD", "X@GRAD")));
  schemas->Add(std::move(shuffle));
  OpSchema channels = OpSchema("shuffle_channel")
                          .In("X")
                          .Out("Out")
                          .Attr("group", 1)
                          .Infer(ChannelGroups("group", "X", "Out"));
  schemas->Add(GradSchema(channels, "shuffle_channel_grad", {{}, {"Out"}, {"X"}},
                          ChannelGroups("group", "Out@GRAD", "X@GRAD")));
  schemas->Add(std::move(channels));
  OpSchema unshuffle = OpSchema("pixel_unshuffle")
                           .In("X")
                           .Out("Out")
                           .Attr("data_format", "NCHW")
                           .Attr("downscale_factor", 1)
                           .Infer(PixelUnshuffle("downscale_factor", "X", "Out"));
  schemas->Add(GradSchema(unshuffle, "pixel_unshuffle_grad", {{}, {"Out"}, {"X"}},
                          PixelShuffle("downscale_factor", "Out@GRAD", "X@GRAD")));
  schemas->Add(std::move(unshuffle));
  OpSchema mixed = OpSchema("channel_shuffle")
                       .In("X")
                       .Out("Out")
                       .Attr("data_format", "NCHW")
                       .Attr("groups", 1)
                       .Infer(ChannelGroups("groups", "X", "Out"));
  schemas->Add(GradSchema(mixed, "channel_shuffle_grad", {{}, {"Out"}, {"X"}},
                          ChannelGroups("groups", "Out@GRAD", "X@GRAD")));
  schemas->Add(std::move(mixed));
  OpSchema frames = OpSchema("temporal_shift")
                        .In("X")
                        .Out("Out")
                        .Attr("data_format", "NCHW")
                        .RequiredAttr("seg_num", 1)
                        .Attr("shift_ratio", 0.25f)
                        .Infer(Frames("X", "Out"));
  schemas->Add(GradSchema(frames, "temporal_shift_grad", {{}, {"Out"}, {"X"}},
                          Frames("Out@GRAD", "X@GRAD")));
  schemas->Add(std::move(frames));
}

}  // namespace

void AddViewSchemas(OpSchemaTable* schemas) {
  AddDimensions(schemas);
  AddSlices(schemas);
  AddRepetitions(schemas);
  AddStacks(schemas);
  AddOthers(schemas);
}

}  // namespace weft
