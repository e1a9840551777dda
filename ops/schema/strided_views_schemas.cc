// Ops whose output is a strided view of the input.
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::StatusOr<Dims> SliceDims(const InferContext& context, const Dims& x) {
  return SlicedDims(context, x, nullptr, "decrease_axis", /*must_be_one=*/true);
}

absl::StatusOr<Dims> StridedSliceDims(const InferContext& context, const Dims& x) {
  return SlicedDims(context, x, "strides", "decrease_axis", /*must_be_one=*/true);
}

OpSchema Slice(const char* type, absl::string_view first_inputs = "") {
  return OpSchema(type, first_inputs)
      .In("EndsTensor{ends}, EndsTensorList*{ends}, Input")
      .In("StartsTensor{starts}, StartsTensorList*{starts}")
      .Out("Out")
      .Attr("axes", Ints{})
      .Attr("decrease_axis", Ints{})
      .Attr("ends", Ints{})
      .Attr("infer_flags", Ints{})
      .Attr("starts", Ints{})
      .With(Trait::kLinear);
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

absl::Status InferCrop(InferContext& context) {
  return context.HasInput("Y") ? absl::OkStatus() : OutDims(CropDims)(context);
}

// X with each dimension repeated. Leading ones pad the shorter of dims and attribute.
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

// X repeated to a shape, where -1 stands for the dimension of X.
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

// With a tensor for the shape. Programs then declare the dims of X, which are not those of Out.
absl::Status InferExpandByTensor(InferContext& context, const TensorType& x) {
  const TensorType* const shape = context.Input("Shape");
  if (shape == nullptr || shape->dims.size() != 1) return absl::OkStatus();
  const int64_t missing = shape->dims[0] - static_cast<int64_t>(x.dims.size());
  constexpr int64_t kMostDims = 9;  // of a tensor of Paddle
  if (missing < 0 || shape->dims[0] > kMostDims) return absl::OkStatus();
  Dims dims(shape->dims[0], -1);
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (x.dims[d] != 1) dims[missing + d] = x.dims[d];
  }
  context.SetOutput("Out", {x.dtype, dims});
  return absl::OkStatus();
}

absl::Status InferExpandAs(InferContext& context, const TensorType& x) {
  const TensorType* y = context.Input("Y");
  if (y == nullptr) {
    WEFT_ASSIGN_OR_RETURN(const Dims dims, ExpandedDims(context, x.dims, "target_shape"));
    context.SetOutput("Out", {x.dtype, dims});
    return absl::OkStatus();
  }
  if (!Repeats(x.dims, y->dims)) {
    return context.InputError("X", absl::StrCat("a shape to repeat to ", DimsToString(y->dims)));
  }
  context.SetOutput("Out", {x.dtype, y->dims});
  return absl::OkStatus();
}

absl::StatusOr<Dims> RepeatInterleaveDims(const InferContext& context, const Dims& x) {
  WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "dim", x.size()));
  Dims dims = x;
  dims[axis] = MulDim(x[axis], context.attrs().Int("Repeats"));
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

absl::Status InferTransposeGrad(InferContext& context) {
  WEFT_RETURN_IF_ERROR(InferGradFromXShape(context));
  const TensorType* xshape = context.Input("XShape");
  const TensorType* grad = context.Input("Out@GRAD");
  if (xshape == nullptr || grad == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(
      const Dims dims, TransposedDims(context, Dims(xshape->dims.begin() + 1, xshape->dims.end())));
  if (DimsFit(grad->dims, dims)) return absl::OkStatus();
  return context.InputError("Out@GRAD", absl::StrCat("dimensions ", DimsToString(dims)));
}

}  // namespace

void AddStridedViewsSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("transpose", "X -> Out")
                  .RequiredAttr("axis", Ints{})
                  .With(Trait::kLinear)
                  .Infer(OutDims(TransposedDims))
                  .Batch({batch::Transpose, Powers::kFirst}),
              {{"X", "Out"}, {"Out"}, {"X"}});
  const auto reversal = [](const char* type) {
    return OpSchema(type, "X -> Out")
        .RequiredAttr("axis", Ints{})
        .With(Trait::kLinear)
        .Infer(OutDims(FlippedDims))
        .Batch({batch::NotAlong("X", "axis"), Powers::kFirst});
  };
  schemas->Add(reversal("flip").Pir());
  schemas->Add(reversal("reverse"));
  const GradSlots grad = {{"Input"}, {"Out"}, {"Input"}};
  AddWithGrad(schemas,
              Slice("slice")
                  .Infer(OutDims(SliceDims, "Input"))
                  .Batch({batch::Slice, Powers::kOwn})
                  .Pir("(input, @starts/tensor, @ends/tensor)"),
              grad);
  AddWithGrad(
      schemas,
      Slice("strided_slice", "StridesTensor{strides}, StridesTensorList*{strides}")
          .Attr("strides", Ints{})
          .Infer(InOrder({NoOpenEndsOfPaddle2("strides"), OutDims(StridedSliceDims, "Input")}))
          .Batch({batch::Slice, Powers::kOwn})
          .Pir("(x:Input, @starts, @ends, @strides)"),
      grad);
  AddWithGrad(
      schemas,
      OpSchema(
          "crop_tensor",
          "Offsets{offsets}, OffsetsTensor*{offsets}, Shape{shape}, ShapeTensor*{shape}, X -> Out")
          .Attr("offsets", Ints{})
          .Attr("shape", Ints{})
          .Infer(OutDims(CropDims))
          .Batch({batch::Crop, Powers::kFirst})
          .Pir("crop(x, @shape/tensor, @offsets/tensor)", "(x, out_grad, @offsets/tensor)"),
      GradOfX());
  // With Y, it has the dimensions of Y; no kernel.
  AddWithGrad(schemas,
              OpSchema("crop", "Offsets{offsets}, X, Y? -> Out")
                  .Attr("offsets", Ints{})
                  .Attr("shape", Ints{})
                  .Infer(InferCrop)
                  .Batch({batch::Crop, Powers::kFirst}),
              GradOfX());
  AddWithGrad(
      schemas,
      OpSchema("tile", "RepeatTimes{repeat_times}, X, repeat_times_tensor*{repeat_times} -> Out")
          .Attr("repeat_times", Ints{})
          .With(Trait::kLinear)
          .Infer(OutDims(TileDims))
          .Batch({batch::Repeat("repeat_times"), Powers::kFirst})
          .Pir("(x, @repeat_times/tensor)"),
      GradOfX());
  AddWithGrad(
      schemas,
      OpSchema("expand", "ExpandTimes{expand_times}, X, expand_times_tensor*{expand_times} -> Out")
          .Attr("expand_times", Ints{})
          .With(Trait::kLinear)
          .Infer(OutDims(ExpandTimesDims))
          .Batch({batch::Repeat("expand_times"), Powers::kFirst}),
      GradOfX());
  AddWithGrad(schemas,
              OpSchema("expand_v2", "Shape{shape}, X, expand_shapes_tensor*{shape} -> Out")
                  .Attr("shape", Ints{})
                  .With(Trait::kLinear)
                  .Infer(InOrder({IfKnown("X", InferExpandByTensor), OutDims(ExpandDims)}))
                  .Batch({batch::Expand, Powers::kOwn})
                  .Pir("expand(x, @shape/tensor)"),
              GradOfX());
  AddWithGrad(schemas,
              OpSchema("expand_as_v2", "X, Y? -> Out")
                  .Attr("target_shape", Ints{})
                  .Infer(IfKnown("X", InferExpandAs))
                  .Batch({batch::ExpandAs, Powers::kOwn})
                  .Pir("expand_as"),
              GradOfX());
  AddWithGrad(schemas,
              OpSchema("repeat_interleave", "RepeatsTensor?, X -> Out")
                  .Attr("Repeats", 1, range::AtLeast(0))
                  .Attr("dim", 0)
                  .Infer(OutDims(RepeatInterleaveDims))
                  .Batch({batch::Along("X", "dim"), Powers::kFirst})
                  .Pir("(x) {repeats=Repeats, axis=dim}"),
              GradOfX());
  schemas->Add(OpSchema("transpose2", "X -> Out, XShape?~")
                   .RequiredAttr("axis", Ints{})
                   .With(Trait::kLinear)
                   .Infer(OutDims(TransposedDims))
                   .Batch({batch::Transpose, Powers::kFirst})
                   .Pir("transpose {perm=axis}"));
  schemas->Add(OpSchema("transpose2_grad", "Out@GRAD, XShape -> X@GRAD")
                   .RequiredAttr("axis", Ints{})
                   .Infer(InferTransposeGrad));
}

}  // namespace weft
