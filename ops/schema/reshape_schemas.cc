// The same elements under other dims.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/out_dims.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional, kLooseType = OpSchema::kLooseType;
constexpr int kDuplicable = OpSchema::kDuplicable;

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

// An op whose gradient knows the dims of X from XShape.
void AddWithXShape(OpSchemaTable* schemas, OpSchema op) {
  std::move(op).Out("Out").Out("XShape", kOptional | kLooseType).With(Trait::kLinear);
  schemas->Add(
      GradSchema(op, op.type() + "_grad", {{"XShape"}, {"Out"}, {"X"}}, InferGradFromXShape));
  schemas->Add(std::move(op));
}

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

}  // namespace

void AddReshapeSchemas(OpSchemaTable* schemas) {
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
      GradOfX());
  AddWithGrad(schemas,
              OpSchema("unsqueeze")
                  .In("X")
                  .Out("Out")
                  .RequiredAttr("axes", Ints{})
                  .Infer(OutDims(UnsqueezedDims)),
              GradOfX());
  AddWithGrad(schemas,
              OpSchema("flatten").In("X").Out("Out").Attr("axis", 1).Infer(OutDims(FlattenedDims)),
              GradOfX());
  schemas->Add(OpSchema("reshape2")
                   .AttrIn("Shape", {"shape"})
                   .AttrIn("ShapeTensor", {"shape"}, kDuplicable)
                   .In("X")
                   .Out("Out")
                   .Out("XShape", kOptional | kLooseType)
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
  schemas->Add(OpSchema("flatten_contiguous_range")
                   .In("X")
                   .Out("Out")
                   .Out("XShape", kOptional | kLooseType)
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
