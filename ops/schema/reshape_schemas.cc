// The same elements under other dims.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Without the dimensions of 1 among the axes; without all of them if no axis is named.
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

// Out stays unset where a named dimension is unknown: it may be 1.
absl::Status InferSqueeze(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  for (int64_t value : context.attrs().Ints("axes")) {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axes", value, x->dims.size()));
    if (x->dims[axis] != -1) continue;
    context.SetOutput("XShape", ToXShape(*x));
    return absl::OkStatus();
  }
  return OutDims(SqueezedDims)(context);
}

// With new dimensions of 1, inserted one after another.
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

// An op whose gradient takes the dims of X from XShape.
void AddWithXShape(OpSchemaTable* schemas, OpSchema op) {
  std::move(op).Out("Out, XShape?~").With(Trait::kLinear);
  schemas->Add(
      GradSchema(op, op.type() + "_grad", {{"XShape"}, {"Out"}, {"X"}}, InferGradFromXShape));
  schemas->Add(std::move(op));
}

// 0 copies the dimension of X at that position. -1, at most one, stands for the remaining elements;
// it stays unknown if a dimension of X is.
absl::StatusOr<Dims> ReshapedDims(const InferContext& context, const Dims& x) {
  const std::vector<int64_t> shape = context.attrs().Ints("shape");
  const auto error = [&](absl::string_view expected) {
    return context.AttrError("shape", absl::StrCat(expected, DimsToString(x)), DimsToString(shape));
  };
  Dims dims(shape.begin(), shape.end());
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < -1 || (dims[i] == 0 && i >= x.size())) {
      return error("a shape for ");
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
      return error("a shape for ");
    }
    dim = elements == -1 || others == -1 ? -1 : others == 0 ? 0 : elements / others;
  }
  if (!DimFits(Product(dims), elements)) return error("as many elements as ");
  return dims;
}

absl::StatusOr<Dims> FlattenedRangeDims(const InferContext& context, const Dims& x) {
  if (x.empty()) return Dims{1};
  WEFT_ASSIGN_OR_RETURN(const int start, ResolveAxis(context, "start_axis", x.size()));
  WEFT_ASSIGN_OR_RETURN(const int stop, ResolveAxis(context, "stop_axis", x.size()));
  if (stop < start) {
    return context.AttrError("stop_axis", absl::StrCat(start, " (start_axis) or more"),
                             absl::StrCat(stop));
  }
  Dims dims(x.begin(), x.begin() + start);
  dims.push_back(Product(absl::MakeSpan(x).subspan(start, stop - start + 1)));
  dims.insert(dims.end(), x.begin() + stop + 1, x.end());
  return dims;
}

}  // namespace

void AddReshapeSchemas(OpSchemaTable* schemas) {
  AddWithXShape(schemas, OpSchema("squeeze2", "X")
                             .Attr("axes", Ints{})
                             .Infer(InferSqueeze)
                             .Algebra(Algebra::kReshape)
                             .Batch({batch::Squeeze, Powers::kFirst})
                             .Pir("squeeze(x, axis:@axes)", "(x:-, out_grad, axis:@axes)"));
  AddWithXShape(schemas, OpSchema("unsqueeze2", "AxesTensor{axes}, AxesTensorList*{axes}, X")
                             .RequiredAttr("axes", Ints{})
                             .Infer(OutDims(UnsqueezedDims))
                             .Algebra(Algebra::kReshape)
                             .Batch({batch::Unsqueeze, Powers::kFirst})
                             .Pir("unsqueeze(x, axis:@axes)", "(x:-, out_grad, axis:@axes)"));
  AddWithXShape(schemas, OpSchema("flatten2", "X")
                             .Attr("axis", 1)
                             .Infer(OutDims(FlattenedDims))
                             .Algebra(Algebra::kReshape)
                             .Batch({batch::Reshape, Powers::kFirst}));
  // Older programs have these forms, without XShape.
  AddWithGrad(schemas,
              OpSchema("squeeze", "X -> Out")
                  .Attr("axes", Ints{})
                  .Infer(InferSqueeze)
                  .Algebra(Algebra::kReshape)
                  .Batch({batch::Squeeze, Powers::kFirst}),
              GradOfX());
  AddWithGrad(schemas,
              OpSchema("unsqueeze", "X -> Out")
                  .RequiredAttr("axes", Ints{})
                  .Infer(OutDims(UnsqueezedDims))
                  .Algebra(Algebra::kReshape)
                  .Batch({batch::Unsqueeze, Powers::kFirst}),
              GradOfX());
  AddWithGrad(schemas,
              OpSchema("flatten", "X -> Out")
                  .Attr("axis", 1)
                  .Infer(OutDims(FlattenedDims))
                  .Algebra(Algebra::kReshape)
                  .Batch({batch::Reshape, Powers::kFirst}),
              GradOfX());
  schemas->Add(OpSchema("reshape2", "Shape{shape}, ShapeTensor*{shape}, X -> Out, XShape?~")
                   .Attr("shape", Ints{})
                   .With(Trait::kLinear)
                   .Infer(OutDims(ReshapedDims))
                   .Algebra(Algebra::kReshape)
                   .Batch({batch::Reshape, Powers::kOwn})
                   .Pir("reshape(x, @shape/tensor)", "(x:-, out_grad)"));
  AddWithGrad(schemas,
              OpSchema("reshape", "Shape{shape}, ShapeTensor*{shape}, X -> Out")
                  .Attr("shape", Ints{})
                  .With(Trait::kLinear)
                  .Infer(OutDims(ReshapedDims))
                  .Algebra(Algebra::kReshape)
                  .Batch({batch::Reshape, Powers::kOwn}),
              {{"X", "Out"}, {"Out"}, {"X"}});
  schemas->Add(OpSchema("reshape2_grad", "Out@GRAD, XShape -> X@GRAD")
                   .Attr("shape", Ints{})
                   .Infer(InferGradFromXShape));
  schemas->Add(OpSchema("flatten_contiguous_range", "X -> Out, XShape?~")
                   .Attr("start_axis", 1)
                   .Attr("stop_axis", 1)
                   .With(Trait::kLinear)
                   .Infer(OutDims(FlattenedRangeDims))
                   .Algebra(Algebra::kReshape)
                   .Batch({batch::FlattenRange, Powers::kFirst})
                   .Pir("flatten", "(x:-, out_grad)"));
  schemas->Add(OpSchema("flatten_contiguous_range_grad", "Out@GRAD, XShape -> X@GRAD")
                   .Attr("start_axis", 1)
                   .Attr("stop_axis", 1)
                   .Infer(InferGradFromXShape));
}

}  // namespace weft
