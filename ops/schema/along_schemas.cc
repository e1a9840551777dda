// Ops that work on the elements along one dimension.
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The axis; of a scalar 0 or -1.
absl::StatusOr<int> AxisOf(const InferContext& context, const char* attr, const Dims& dims) {
  const int64_t value = context.attrs().Int(attr);
  if (dims.empty() && (value == 0 || value == -1)) return 0;
  return ResolveAxis(context, attr, value, dims.size());
}

// Out is like X, whose axis is there; without attribute `flatten` set.
OpSchema::InferFn AlongAxis(const char* attr) {
  return [=](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input("X");
    if (x == nullptr) return absl::OkStatus();
    if (context.attrs().Has("flatten") && context.attrs().Bool("flatten")) {
      context.SetOutput("Out", {x->dtype, {Product(x->dims)}});
      return absl::OkStatus();
    }
    WEFT_RETURN_IF_ERROR(AxisOf(context, attr, x->dims).status());
    context.SetOutput("Out", *x);
    return absl::OkStatus();
  };
}

absl::Status InferLogSoftmaxGrad(InferContext& context) {
  const TensorType* out = context.Input("Out");
  if (out == nullptr) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(AxisOf(context, "axis", out->dims).status());
  context.SetOutput("X@GRAD", *out);
  return absl::OkStatus();
}

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
    WEFT_ASSIGN_OR_RETURN(const int axis, AxisOf(context, "axis", x->dims));
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
  WEFT_RETURN_IF_ERROR(AxisOf(context, "axis", x->dims).status());
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
      WEFT_ASSIGN_OR_RETURN(axis, AxisOf(context, "axis", x->dims));
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
  WEFT_RETURN_IF_ERROR(AxisOf(context, "axis", x->dims).status());
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
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisOf(context, "axis", x->dims));
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

absl::Status InferRenorm(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const double p = context.attrs().Float("p");
  if (!(p > 0 && std::isfinite(p))) {
    return context.AttrError("p", "a number above 0", absl::StrCat(p));
  }
  if (x->dims.size() < 2) return context.InputError("X", "at least two dimensions");
  WEFT_RETURN_IF_ERROR(AxisOf(context, "axis", x->dims).status());
  context.SetOutput("Out", *x);
  return absl::OkStatus();
}

// The axis has three elements; 9 stands for the first one that has.
absl::Status InferCross(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const int64_t dim = context.attrs().Int("dim");
  if (dim == 9) {
    if (absl::c_none_of(x->dims, [](int64_t size) { return DimFits(size, 3); })) {
      return context.InputError("X", "a dimension of size 3");
    }
  } else {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "dim", dim, x->dims.size()));
    if (!DimFits(x->dims[axis], 3)) {
      return context.InputError("X", absl::StrCat("size 3 of dimension ", axis));
    }
  }
  context.SetOutput("Out", *x);
  return absl::OkStatus();
}

absl::Status InferNorm(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.empty()) return context.InputError("X", "at least one dimension");
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisOf(context, "axis", x->dims));
  TensorType norm = *x;
  norm.dims[axis] = 1;
  context.SetOutput("Norm", norm);
  context.SetOutput("Out", *x);
  return absl::OkStatus();
}

OpSchema Cumulative(const char* type) {
  return OpSchema(type)
      .In("X")
      .Out("Out")
      .Attr("axis", -1)
      .Attr("exclusive", false)
      .Attr("flatten", false)
      .Attr("reverse", false)
      .Infer(AlongAxis("axis"));
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

void AddAlongSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas, Cumulative("cumsum"), {{"X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas, Cumulative("logcumsumexp"), {{"Out", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("cumprod").In("X").Out("Out").RequiredAttr("dim", 0).Infer(AlongAxis("dim")),
              {{"Out", "X"}, {"Out"}, {"X"}});
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
  AddWithGrad(schemas,
              OpSchema("renorm")
                  .In("X")
                  .Out("Out")
                  .RequiredAttr("axis", 0)
                  .RequiredAttr("max_norm", 0.0f)
                  .RequiredAttr("p", 0.0f)
                  .Infer(InferRenorm),
              {{"X"}, {"Out"}, {"X"}});
  OpSchema log_softmax =
      OpSchema("log_softmax").In("X").Out("Out").Attr("axis", -1).Infer(AlongAxis("axis"));
  schemas->Add(GradSchema(log_softmax, "log_softmax_grad", {{"Out"}, {"Out"}, {"X"}},
                          InOrder({SameType("Out", "Out@GRAD"), InferLogSoftmaxGrad})));
  schemas->Add(std::move(log_softmax));
  AddWithGrad(schemas,
              OpSchema("cross").In("X").In("Y").Out("Out").Attr("dim", 9).Infer(
                  InOrder({SameType("X", "Y"), InferCross})),
              {{"X", "Y"}, {"Out"}, {"X", "Y"}});
  AddWithGrad(schemas,
              OpSchema("norm")
                  .In("X")
                  .Out("Norm")
                  .Out("Out")
                  .RequiredAttr("axis", 0)
                  .Attr("epsilon", 1e-10f)
                  .Infer(InferNorm),
              {{"Norm", "X"}, {"Out"}, {"X"}});
}

}  // namespace weft
