// The largest and smallest elements along a dimension, sorted ones, and where they stand.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferArgExtreme(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const OpAttrs& attrs = context.attrs();
  const int64_t number = attrs.Int("dtype");
  TensorType out = {DType::kInt64, x->dims};
  if (number != -1) {
    const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(number));
    if (dtype != DType::kInt64 && dtype != DType::kInt32) {
      return context.AttrError("dtype", "the number of int32 or int64", absl::StrCat(number));
    }
    out.dtype = *dtype;
  }
  if (attrs.Bool("flatten")) {
    out.dims = attrs.Bool("keepdims") ? Dims(x->dims.size(), 1) : Dims();
  } else if (!x->dims.empty()) {
    WEFT_ASSIGN_OR_RETURN(const int axis, AxisFromAttr(context, "axis", x->dims));
    if (attrs.Bool("keepdims")) {
      out.dims[axis] = 1;
    } else {
      out.dims.erase(out.dims.begin() + axis);
    }
  }
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::Status InferArgsort(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(AxisFromAttr(context, "axis", x->dims).status());
  context.SetOutput("Out", *x);
  context.SetOutput("Indices", {DType::kInt64, x->dims});
  return absl::OkStatus();
}

absl::Status InferTopK(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr || HasAttrInput(context)) return absl::OkStatus();
  const OpAttrs& attrs = context.attrs();
  TensorType out = *x;
  if (!x->dims.empty()) {
    int axis = static_cast<int>(x->dims.size()) - 1;
    if (attrs.Has("axis")) {
      WEFT_ASSIGN_OR_RETURN(axis, AxisFromAttr(context, "axis", x->dims));
    }
    const int64_t k = attrs.Int("k");
    if (k < 1 || (x->dims[axis] != -1 && k > x->dims[axis])) {
      return context.AttrError("k", absl::StrCat("1 to ", x->dims[axis]), absl::StrCat(k));
    }
    out.dims[axis] = k;
  }
  context.SetOutput("Out", out);
  context.SetOutput("Indices", {DType::kInt64, out.dims});
  return absl::OkStatus();
}

// The gradient of top_k has no attributes: it takes the shape of Indices for that of Out.
absl::Status InferTopKGrad(InferContext& context) {
  const TensorType* x = context.Input("X");
  const TensorType* indices = context.Input("Indices");
  if (x != nullptr && indices != nullptr) {
    Dims expected = x->dims;
    if (!expected.empty() && !indices->dims.empty()) expected.back() = indices->dims.back();
    if (!DimsFit(indices->dims, expected)) {
      return context.InputError("Indices", absl::StrCat("dimensions ", DimsToString(expected)));
    }
  }
  return GradsLikeInputs()(context);
}

absl::Status InferCumulativeExtreme(InferContext& context) {
  const TensorType* x = context.Input("x");
  if (x == nullptr) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(AxisFromAttr(context, "axis", x->dims).status());
  const int64_t number = context.attrs().Int("dtype");
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(number));
  if (dtype != DType::kInt64 && dtype != DType::kInt32) {
    return context.AttrError("dtype", "the number of int32 or int64", absl::StrCat(number));
  }
  context.SetOutput("out", *x);
  context.SetOutput("indices", {*dtype, x->dims});
  return absl::OkStatus();
}

// One element of each row, the k-th one where there is attribute k. Indices are int64, but Paddle
// declares them to be of the type of X.
absl::Status InferChosen(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisFromAttr(context, "axis", x->dims));
  const int64_t size = x->dims.empty() ? 1 : x->dims[axis];
  if (attrs.Has("k")) {
    const int64_t k = attrs.Int("k");
    if (k < 1 || (size != -1 && k > size)) {
      return context.AttrError("k", absl::StrCat("1 to ", size), absl::StrCat(k));
    }
  }
  TensorType out = *x;
  if (attrs.Bool("keepdim")) {
    if (!out.dims.empty()) out.dims[axis] = 1;
  } else if (!out.dims.empty()) {
    out.dims.erase(out.dims.begin() + axis);
  }
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

OpSchema CumulativeExtreme(const char* type) {
  return OpSchema(type)
      .In("x")
      .Out("indices")
      .Out("out")
      .Attr("axis", -1)
      .Attr("dtype", static_cast<int>(DType::kInt64))
      .Infer(InferCumulativeExtreme);
}

OpSchema ArgExtreme(const char* type) {
  return OpSchema(type)
      .In("X")
      .Out("Out")
      .RequiredAttr("axis", int64_t{0})
      .Attr("dtype", static_cast<int>(DType::kInt64))
      .Attr("flatten", false)
      .Attr("keepdims", false)
      .Infer(InferArgExtreme);
}

}  // namespace

void AddOrderStatisticsSchemas(OpSchemaTable* schemas) {
  schemas->Add(ArgExtreme("arg_max"));
  schemas->Add(ArgExtreme("arg_min"));
  const GradSlots sorted_grad = {{"Indices", "X"}, {"Out"}, {"X"}};
  AddWithGrad(schemas,
              OpSchema("argsort")
                  .In("X")
                  .Out("Indices")
                  .Out("Out")
                  .Attr("axis", -1)
                  .Attr("descending", false)
                  .Infer(InferArgsort),
              sorted_grad);
  OpSchema top_k = OpSchema("top_k")
                       .AttrIn("K", {"k"})
                       .In("X")
                       .Out("Indices")
                       .Out("Out")
                       .Attr("k", 1)
                       .Infer(InferTopK);
  schemas->Add(GradSchema(top_k, "top_k_grad", sorted_grad,
                          InOrder({SameDims("Indices", "Out@GRAD"), InferTopKGrad})));
  schemas->Add(std::move(top_k));
  AddWithGrad(schemas,
              OpSchema("top_k_v2")
                  .AttrIn("K", {"k"})
                  .In("X")
                  .Out("Indices")
                  .Out("Out")
                  .Attr("axis", -1)
                  .Attr("k", 1)
                  .Attr("largest", true)
                  .Attr("sorted", true)
                  .Infer(InferTopK),
              sorted_grad);
  const GradSlots cumulative_grad = {{"indices", "x"}, {"out"}, {"x"}};
  AddWithGrad(schemas, CumulativeExtreme("cummax"), cumulative_grad);
  AddWithGrad(schemas, CumulativeExtreme("cummin"), cumulative_grad);
  AddWithGrad(schemas,
              OpSchema("kthvalue")
                  .In("X")
                  .Out("Indices")
                  .Out("Out")
                  .Attr("axis", -1)
                  .Attr("k", 1)
                  .Attr("keepdim", false)
                  .Infer(InferChosen),
              sorted_grad);
  AddWithGrad(schemas,
              OpSchema("mode")
                  .In("X")
                  .Out("Indices")
                  .Out("Out")
                  .Attr("axis", -1)
                  .Attr("keepdim", false)
                  .Infer(InferChosen),
              sorted_grad);
}

}  // namespace weft
