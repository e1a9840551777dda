// Reads, writes, and adds to, the elements and slices that a tensor of indices names.
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Whether both types are known; an error if Index does not hold integers.
absl::StatusOr<bool> BothKnown(const InferContext& context, const char* x, const char* index) {
  const TensorType* type = context.Input(index);
  if (type != nullptr && !IsIndex(type->dtype)) {
    return context.InputError(index, "int64 or int32 numbers");
  }
  return context.Input(x) != nullptr && type != nullptr;
}

// X with the dimensions of Index (one, or none) in place of the axis.
OpSchema::InferFn Picked(const char* axis_attr) {
  return [=](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const bool known, BothKnown(context, "X", "Index"));
    if (!known || HasAttrInput(context)) return absl::OkStatus();
    const TensorType& x = *context.Input("X");
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, axis_attr, x.dims.size()));
    // [n, 1] counts as [n].
    Dims picked = context.Input("Index")->dims;
    if (picked.size() == 2 && picked[1] == 1) picked.pop_back();
    if (picked.size() > 1) return context.InputError("Index", "one dimension");
    TensorType out = {x.dtype, Dims(x.dims.begin(), x.dims.begin() + axis)};
    out.dims.insert(out.dims.end(), picked.begin(), picked.end());
    out.dims.insert(out.dims.end(), x.dims.begin() + axis + 1, x.dims.end());
    context.SetOutput("Out", out);
    return absl::OkStatus();
  };
}

// Out is like X. `updates` is X with as many layers along attribute axis, or 0 if there is none, as
// `index` has numbers. In the gradient op, Out@GRAD and X@GRAD stand for X and Out.
OpSchema::InferFn Updated(const char* x_slot, const char* index_slot, const char* updates_slot,
                          const char* out_slot) {
  return [=](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const bool known, BothKnown(context, x_slot, index_slot));
    if (!known) return absl::OkStatus();
    const TensorType& x = *context.Input(x_slot);
    const int64_t value = context.attrs().Has("axis") ? context.attrs().Int("axis") : 0;
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", value, x.dims.size()));
    Dims expected = x.dims;
    expected[axis] = Product(context.Input(index_slot)->dims);
    WEFT_RETURN_IF_ERROR(CheckDims(context, updates_slot, expected));
    context.SetOutput(out_slot, x);
    return absl::OkStatus();
  };
}

// The last dimension of Index holds indices along the first dimensions of X. The dims of what they
// select.
absl::StatusOr<absl::optional<Dims>> NamedParts(const InferContext& context, const char* x_slot) {
  WEFT_ASSIGN_OR_RETURN(const bool known, BothKnown(context, x_slot, "Index"));
  if (!known) return absl::optional<Dims>();
  const Dims& x = context.Input(x_slot)->dims;
  const Dims& index = context.Input("Index")->dims;
  const int64_t depth = index.empty() ? -1 : index.back();
  if (depth < 0 || depth > static_cast<int64_t>(x.size())) {
    return context.InputError("Index", absl::StrCat("a last dimension of at most ", x.size()));
  }
  Dims dims(index.begin(), index.end() - 1);
  dims.insert(dims.end(), x.begin() + depth, x.end());
  return absl::optional<Dims>(dims);
}

absl::Status InferGatherNd(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<Dims> dims, NamedParts(context, "X"));
  if (dims.has_value()) context.SetOutput("Out", {context.Input("X")->dtype, *dims});
  return absl::OkStatus();
}

OpSchema::InferFn ScatteredNd(const char* x_slot, const char* out_slot) {
  return [=](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const absl::optional<Dims> dims, NamedParts(context, x_slot));
    if (dims.has_value()) WEFT_RETURN_IF_ERROR(CheckDims(context, "Updates", *dims));
    if (const TensorType* x = context.Input(x_slot)) context.SetOutput(out_slot, *x);
    return GradsLikeInputs()(context);
  };
}

// `indices` hold indices along the first dimensions of x and broadcast with each other. value
// broadcasts with the parts of x that they name.
OpSchema::InferFn PutParts(const char* x_slot, const char* out_slot) {
  return [=](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input(x_slot);
    bool known = x != nullptr;
    Dims parts;
    for (size_t i = 0; i < context.NumInputs("indices"); ++i) {
      const TensorType* index = context.Input("indices", i);
      known = known && index != nullptr;
      if (index == nullptr) continue;
      if (!IsIndex(index->dtype)) {
        return context.InputError("indices", i, "int64 or int32 numbers");
      }
      const absl::optional<Dims> dims = BroadcastDims(parts, index->dims);
      if (!dims.has_value()) {
        return context.InputError(
            "indices", i, absl::StrCat("dimensions that broadcast with ", DimsToString(parts)));
      }
      parts = *dims;
    }
    if (known) {
      const size_t depth = context.NumInputs("indices");
      if (depth > x->dims.size()) {
        return context.InputError(x_slot, absl::StrCat("at least ", depth, " dimensions"));
      }
      parts.insert(parts.end(), x->dims.begin() + depth, x->dims.end());
      const TensorType* value = context.Input("value");
      if (value != nullptr) {
        const absl::optional<Dims> all = BroadcastDims(parts, value->dims);
        if (!all.has_value() || !DimsFit(*all, parts)) {
          return context.InputError(
              "value", absl::StrCat("dimensions that broadcast to ", DimsToString(parts)));
        }
      }
    }
    if (x != nullptr) context.SetOutput(out_slot, *x);
    return GradsLikeInputs()(context);
  };
}

// One element of X per number of Index, whose dimensions, except the axis, are at most those of X.
// Without `axis_attr`, the axis is 1, and Index has the rows of X, no fewer. Without `out_slot` it
// only checks.
OpSchema::InferFn TakenAlong(const char* x_slot, const char* out_slot, const char* axis_attr) {
  return [=](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const bool known, BothKnown(context, x_slot, "Index"));
    if (!known) return absl::OkStatus();
    const TensorType& x = *context.Input(x_slot);
    const Dims& index = context.Input("Index")->dims;
    const bool is_sample = axis_attr == nullptr;
    WEFT_ASSIGN_OR_RETURN(
        const int axis, ResolveAxis(context, is_sample ? "axis" : axis_attr,
                                    is_sample ? 1 : context.attrs().Int(axis_attr), x.dims.size()));
    bool fits = index.size() == x.dims.size();
    for (size_t d = 0; fits && d < index.size(); ++d) {
      if (static_cast<int>(d) == axis || x.dims[d] == -1) continue;
      fits = index[d] <= x.dims[d] && (!is_sample || index[d] == x.dims[d] || index[d] == -1);
    }
    if (!fits) {
      return context.InputError("Index", absl::StrCat(is_sample ? "the rows of " : "no more than ",
                                                      DimsToString(x.dims)));
    }
    if (out_slot != nullptr) context.SetOutput(out_slot, {x.dtype, index});
    return absl::OkStatus();
  };
}

// Result is like Input, with an element of Value for each number of Index.
absl::Status InferPutAlong(InferContext& context) {
  const TensorType* value = context.Input("Value");
  const TensorType* index = context.Input("Index");
  if (value != nullptr && index != nullptr && !DimsFit(value->dims, index->dims)) {
    return context.InputError("Value", absl::StrCat(DimsToString(index->dims), " as Index"));
  }
  WEFT_RETURN_IF_ERROR(TakenAlong("Input", nullptr, "Axis")(context));
  if (const TensorType* input = context.Input("Input")) context.SetOutput("Result", *input);
  return absl::OkStatus();
}

}  // namespace

void AddGatherScatterSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("gather", "Axis{axis}, Index, X -> Out")
                  .Attr("axis", 0)
                  .Infer(Picked("axis"))
                  .Batch({batch::Gather("axis"), Powers::kFirst})
                  .Pir("(x, index, @axis)"),
              {{"Index", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("index_select", "Index, X -> Out")
                  .Attr("dim", 0)
                  .Infer(Picked("dim"))
                  .Batch({batch::Gather("dim"), Powers::kFirst})
                  .Pir("(x, index) {axis=dim}"),
              {{"Index", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("scatter", "Ids, Updates, X -> Out")
                  .Attr("overwrite", true)
                  .Since(kPaddle2, "clears replaced rows")
                  .Infer(Updated("X", "Ids", "Updates", "Out"))
                  .Batch({batch::Scatter("Ids", "Updates", nullptr)})
                  .Pir("(x, index:Ids, updates)"),
              {{"Ids", "Updates"}, {"Out"}, {"Updates", "X"}},
              InOrder({Updated("Out@GRAD", "Ids", "Updates", "X@GRAD"), GradsLikeInputs()}));
  AddWithGrad(schemas,
              OpSchema("index_add", "AddValue, Index, X -> Out")
                  .Attr("axis", 0)
                  .Infer(Updated("X", "Index", "AddValue", "Out"))
                  .Batch({batch::Scatter("Index", "AddValue", "axis")})
                  .Pir("(x, index, add_value)"),
              {{"AddValue", "Index"}, {"Out"}, {"AddValue", "X"}},
              InOrder({Updated("Out@GRAD", "Index", "AddValue", "X@GRAD"), GradsLikeInputs()}));
  AddWithGrad(schemas,
              OpSchema("gather_nd", "Index, X -> Out")
                  .Infer(InferGatherNd)
                  .Batch({batch::GatherNd, Powers::kFirst})
                  .Pir("(x, index)"),
              {{"Index", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("index_put", "indices*, value, x -> out")
                  .Attr("accumulate", false)
                  .Infer(InOrder({SameDType("x", "value"), PutParts("x", "out")}))
                  .Batch({batch::IndexPut})
                  .Pir("(x, indices, value)"),
              {{"indices", "value", "x"}, {"out"}, {"value", "x"}}, PutParts("out@GRAD", "x@GRAD"));
  AddWithGrad(schemas,
              OpSchema("scatter_nd_add", "Index, Updates, X -> Out")
                  .Infer(ScatteredNd("X", "Out"))
                  .Batch({batch::ScatterNdAdd})
                  .Pir("(x, index, updates)"),
              {{"Index", "Updates"}, {"Out"}, {"Updates", "X"}}, ScatteredNd("Out@GRAD", "X@GRAD"));
  AddWithGrad(schemas,
              OpSchema("index_sample", "Index, X -> Out")
                  .Infer(TakenAlong("X", "Out", nullptr))
                  .Batch({batch::Rows({"X", "Index"}), Powers::kFirst})
                  .Pir("(x, index)"),
              {{"Index", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("take_along_axis", "Index, Input -> Result")
                  .Attr("Axis", 0)
                  .Infer(TakenAlong("Input", "Result", "Axis"))
                  .Batch({batch::TakeAlong, Powers::kFirst})
                  .Pir("(arr:Input, indices:Index) {axis=Axis}"),
              {{"Index", "Input"}, {"Result"}, {"Input"}});
  AddWithGrad(schemas,
              OpSchema("put_along_axis", "Index, Input, Value -> Result")
                  .Attr("Axis", 0)
                  .Attr("Include_self", true)
                  .Attr("Reduce", "assign",
                        range::OneOf({"assign", "add", "mul", "multiply", "mean", "amin", "amax"}))
                  .Infer(InOrder({SameDType("Input", "Value"), InferPutAlong}))
                  .Batch({batch::PutAlong})
                  .Pir("(arr:Input, indices:Index, values:Value) {axis=Axis, reduce=Reduce, "
                       "include_self=Include_self}"),
              {{"Index", "Input", "Value", "Result"}, {"Result"}, {"Input", "Value"}});
}

}  // namespace weft
