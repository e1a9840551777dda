// The largest, smallest and sorted elements along a dimension, and their indices.
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// X without the dimension of the axis, or with size 1 in it.
Dims Without(Dims dims, int axis, bool keeps_dim) {
  if (dims.empty()) return dims;
  if (keeps_dim) {
    dims[axis] = 1;
  } else {
    dims.erase(dims.begin() + axis);
  }
  return dims;
}

// Attribute k counts from 1 to `size`, which may be unknown.
absl::Status CheckK(const InferContext& context, int64_t size) {
  const int64_t k = context.attrs().Int("k");
  if (k >= 1 && (size == -1 || k <= size)) return absl::OkStatus();
  return context.AttrError("k", absl::StrCat("1 to ", size), absl::StrCat(k));
}

absl::Status InferArgExtreme(InferContext& context, const TensorType& x) {
  const OpAttrs& attrs = context.attrs();
  TensorType out = {DType::kInt64, x.dims};
  if (attrs.Int("dtype") != -1) {
    WEFT_ASSIGN_OR_RETURN(out.dtype, IndexDTypeFromAttr(context, "dtype"));
  }
  if (attrs.Bool("flatten")) {
    out.dims = attrs.Bool("keepdims") ? Dims(x.dims.size(), 1) : Dims();
  } else if (!x.dims.empty()) {
    WEFT_ASSIGN_OR_RETURN(const int axis, AxisFromAttr(context, "axis", x.dims));
    out.dims = Without(x.dims, axis, attrs.Bool("keepdims"));
  }
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::Status InferArgsort(InferContext& context, const TensorType& x) {
  WEFT_RETURN_IF_ERROR(AxisFromAttr(context, "axis", x.dims).status());
  context.SetOutput("Out", x);
  context.SetOutput("Indices", {DType::kInt64, x.dims});
  return absl::OkStatus();
}

absl::Status InferTopK(InferContext& context, const TensorType& x) {
  if (HasAttrInput(context)) return absl::OkStatus();
  TensorType out = x;
  if (!x.dims.empty()) {
    int axis = static_cast<int>(x.dims.size()) - 1;
    if (context.attrs().Has("axis")) {
      WEFT_ASSIGN_OR_RETURN(axis, AxisFromAttr(context, "axis", x.dims));
    }
    WEFT_RETURN_IF_ERROR(CheckK(context, x.dims[axis]));
    out.dims[axis] = context.attrs().Int("k");
  }
  context.SetOutput("Out", out);
  context.SetOutput("Indices", {DType::kInt64, out.dims});
  return absl::OkStatus();
}

// The gradient of top_k has no attributes: the shape of Indices is that of Out.
absl::Status CheckTopKGrad(InferContext& context, const TensorType& x, const TensorType& indices) {
  Dims expected = x.dims;
  if (!expected.empty() && !indices.dims.empty()) expected.back() = indices.dims.back();
  return CheckDims(context, "Indices", expected);
}

absl::Status InferCumulativeExtreme(InferContext& context, const TensorType& x) {
  WEFT_RETURN_IF_ERROR(AxisFromAttr(context, "axis", x.dims).status());
  WEFT_ASSIGN_OR_RETURN(const DType dtype, IndexDTypeFromAttr(context, "dtype"));
  context.SetOutput("out", x);
  context.SetOutput("indices", {dtype, x.dims});
  return absl::OkStatus();
}

// One element of each row: the k-th one if there is attribute k. Indices are int64, but Paddle
// declares them to have the element type of X.
absl::Status InferChosen(InferContext& context, const TensorType& x) {
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisFromAttr(context, "axis", x.dims));
  if (attrs.Has("k")) WEFT_RETURN_IF_ERROR(CheckK(context, x.dims.empty() ? 1 : x.dims[axis]));
  TensorType out = x;
  out.dims = Without(x.dims, axis, attrs.Bool("keepdim"));
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

// Out without the dimensions of the axes, or with size 1 in them; MedianIndex has the positions of
// the two middle elements, if attribute mode is avg, or of the lower one, among those of a median.
absl::Status InferMedian(InferContext& context, const TensorType& x) {
  const OpAttrs& attrs = context.attrs();
  const std::vector<int64_t> axes = attrs.Ints("axis");
  std::vector<bool> reduced(x.dims.size(), axes.empty());
  for (int64_t axis : axes) {
    if (x.dims.empty() && (axis == 0 || axis == -1)) continue;
    WEFT_ASSIGN_OR_RETURN(const int resolved, ResolveAxis(context, "axis", axis, x.dims.size()));
    reduced[resolved] = true;
  }
  TensorType out = {x.dtype, {}};
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (!reduced[d]) out.dims.push_back(x.dims[d]);
    if (reduced[d] && attrs.Bool("keepdim")) out.dims.push_back(1);
  }
  TensorType index = {DType::kInt64, out.dims};
  if (attrs.String("mode") == "avg") index.dims.push_back(2);
  context.SetOutput("Out", out);
  context.SetOutput("MedianIndex", index);
  return absl::OkStatus();
}

OpSchema CumulativeExtreme(const char* type) {
  return OpSchema(type, "x -> indices, out")
      .Attr("axis", -1)
      .Attr("dtype", kInt64)
      .Infer(IfKnown("x", InferCumulativeExtreme));
}

OpSchema ArgExtreme(const char* type) {
  return OpSchema(type, "X -> Out")
      .RequiredAttr("axis", int64_t{0})
      .Attr("dtype", kInt64)
      .Attr("flatten", false)
      .Attr("keepdims", false)
      .Infer(IfKnown("X", InferArgExtreme));
}

}  // namespace

void AddOrderStatisticsSchemas(OpSchemaTable* schemas) {
  schemas->Add(ArgExtreme("arg_max")
                   .Batch({batch::Along("X", "axis", "flatten", "keepdims")})
                   .Pir("argmax(x, @axis)"));
  schemas->Add(ArgExtreme("arg_min")
                   .Batch({batch::Along("X", "axis", "flatten", "keepdims")})
                   .Pir("argmin(x, @axis)"));
  const GradSlots sorted_grad = {{"Indices", "X"}, {"Out"}, {"X"}};
  AddWithGrad(schemas,
              OpSchema("argsort", "X -> Indices, Out")
                  .Attr("axis", -1)
                  .Attr("descending", false)
                  .Infer(IfKnown("X", InferArgsort))
                  .Batch({batch::Along("X", "axis")})
                  .Pir("-> out, indices", "(indices, x, out_grad)"),
              sorted_grad);
  AddWithGrad(schemas,
              OpSchema("top_k", "K{k}, X -> Indices, Out")
                  .Attr("k", 1)
                  .Infer(IfKnown("X", InferTopK))
                  .Batch({batch::NotLast("X")}),
              sorted_grad,
              InOrder({SameDims("Indices", "Out@GRAD"), IfKnown("X", "Indices", CheckTopKGrad),
                       GradsLikeInputs()}));
  AddWithGrad(schemas,
              OpSchema("top_k_v2", "K{k}, X -> Indices, Out")
                  .Attr("axis", -1)
                  .Attr("k", 1)
                  .Attr("largest", true)
                  .Attr("sorted", true)
                  .Infer(IfKnown("X", InferTopK))
                  .Batch({batch::Along("X", "axis")})
                  .Pir("topk(x, @k) -> out, indices"),
              sorted_grad);
  const GradSlots cumulative_grad = {{"indices", "x"}, {"out"}, {"x"}};
  AddWithGrad(schemas,
              CumulativeExtreme("cummax").Batch({batch::Along("x", "axis")}).Pir("-> out, indices"),
              cumulative_grad);
  AddWithGrad(schemas,
              CumulativeExtreme("cummin").Batch({batch::Along("x", "axis")}).Pir("-> out, indices"),
              cumulative_grad);
  AddWithGrad(schemas,
              OpSchema("kthvalue", "X -> Indices, Out")
                  .Attr("axis", -1)
                  .Attr("k", 1)
                  .Attr("keepdim", false)
                  .Infer(IfKnown("X", InferChosen))
                  .Batch({batch::Along("X", "axis", nullptr, "keepdim")})
                  .Pir("-> out, indices"),
              sorted_grad);
  for (const char* type : {"median", "nanmedian"}) {
    AddWithGrad(schemas,
                OpSchema(type, "X -> MedianIndex~, Out")
                    .Attr("axis", Longs{})
                    .Attr("keepdim", true)
                    .Attr("mode", "avg", range::OneOf({"avg", "min"}))
                    .Infer(IfKnown("X", InferMedian))
                    .Batch({batch::Reduced(batch::Reduces::kOther, "axis", nullptr, "keepdim")})
                    .Pir("-> out, medians:MedianIndex"),
                {{"MedianIndex", "Out?", "X"}, {"Out"}, {"X"}});  // Out since Paddle 3.2
  }
  AddWithGrad(schemas,
              OpSchema("mode", "X -> Indices, Out")
                  .Attr("axis", -1)
                  .Attr("keepdim", false)
                  .Infer(IfKnown("X", InferChosen))
                  .Batch({batch::Along("X", "axis", nullptr, "keepdim")})
                  .Pir("-> out, indices"),
              sorted_grad);
}

}  // namespace weft
