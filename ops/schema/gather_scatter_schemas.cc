// Elements and slices that a tensor of indices names: read, written, added to.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_checks.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Both known, Index of whole numbers.
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
    const TensorType& index = *context.Input("Index");
    WEFT_ASSIGN_OR_RETURN(
        const int axis,
        ResolveAxis(context, axis_attr, context.attrs().Int(axis_attr), x.dims.size()));
    // [n, 1] counts as [n].
    Dims picked = index.dims;
    if (picked.size() == 2 && picked[1] == 1) picked.pop_back();
    if (picked.size() > 1) return context.InputError("Index", "one dimension");
    TensorType out = {x.dtype, Dims(x.dims.begin(), x.dims.begin() + axis)};
    out.dims.insert(out.dims.end(), picked.begin(), picked.end());
    out.dims.insert(out.dims.end(), x.dims.begin() + axis + 1, x.dims.end());
    context.SetOutput("Out", out);
    return absl::OkStatus();
  };
}

// `updates` is X with as many layers along the axis as `index` has numbers.
OpSchema::InferFn Updated(const char* index_slot, const char* updates_slot, bool has_axis) {
  return [=](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const bool known, BothKnown(context, "X", index_slot));
    if (!known) return absl::OkStatus();
    const TensorType& x = *context.Input("X");
    WEFT_ASSIGN_OR_RETURN(
        const int axis,
        ResolveAxis(context, "axis", has_axis ? context.attrs().Int("axis") : 0, x.dims.size()));
    Dims expected = x.dims;
    expected[axis] = Product(context.Input(index_slot)->dims);
    const TensorType* updates = context.Input(updates_slot);
    if (updates != nullptr && !DimsFit(updates->dims, expected)) {
      return context.InputError(updates_slot, absl::StrCat("dimensions ", DimsToString(expected)));
    }
    context.SetOutput("Out", x);
    return absl::OkStatus();
  };
}

// The gradients of an op that makes Out of X and some updates: X@GRAD is like Out@GRAD.
OpSchema::InferFn UpdatedGrad(const char* index_slot, const char* updates_slot, bool has_axis) {
  return [=](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const bool known, BothKnown(context, "Out@GRAD", index_slot));
    if (known) {
      const TensorType& grad = *context.Input("Out@GRAD");
      WEFT_ASSIGN_OR_RETURN(const int axis,
                            ResolveAxis(context, "axis", has_axis ? context.attrs().Int("axis") : 0,
                                        grad.dims.size()));
      Dims expected = grad.dims;
      expected[axis] = Product(context.Input(index_slot)->dims);
      const TensorType* updates = context.Input(updates_slot);
      if (updates != nullptr && !DimsFit(updates->dims, expected)) {
        return context.InputError(updates_slot,
                                  absl::StrCat("dimensions ", DimsToString(expected)));
      }
      context.SetOutput("X@GRAD", grad);
    }
    return GradsLikeInputs()(context);
  };
}

// The dims that the last dimension of Index, numbers of the first dimensions of X, leaves.
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
    const TensorType* updates = context.Input("Updates");
    if (dims.has_value() && updates != nullptr && !DimsFit(updates->dims, *dims)) {
      return context.InputError("Updates", absl::StrCat("dimensions ", DimsToString(*dims)));
    }
    if (const TensorType* x = context.Input(x_slot)) context.SetOutput(out_slot, *x);
    return GradsLikeInputs()(context);
  };
}

// `indices` has numbers of the first dimensions of x, broadcast with each other; value broadcasts
// with the parts of x that they name.
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

// One element of X per number (only a check where there is no `out_slot`); but along the axis Index
// has no more than X.
OpSchema::InferFn TakenAlong(const char* x_slot, const char* out_slot, const char* axis_attr) {
  return [=](InferContext& context) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const bool known, BothKnown(context, x_slot, "Index"));
    if (!known) return absl::OkStatus();
    const TensorType& x = *context.Input(x_slot);
    const Dims& index = context.Input("Index")->dims;
    const char* const attr = axis_attr == nullptr ? "axis" : axis_attr;
    WEFT_ASSIGN_OR_RETURN(
        const int axis,
        ResolveAxis(context, attr, axis_attr == nullptr ? 1 : context.attrs().Int(axis_attr),
                    x.dims.size()));
    bool fits = index.size() == x.dims.size();
    for (size_t d = 0; fits && d < index.size(); ++d) {
      fits = static_cast<int>(d) == axis || x.dims[d] == -1 || index[d] <= x.dims[d];
    }
    if (!fits) {
      return context.InputError("Index", absl::StrCat("no more than ", DimsToString(x.dims)));
    }
    if (out_slot != nullptr) context.SetOutput(out_slot, {x.dtype, index});
    return absl::OkStatus();
  };
}

// Result is like Input, with an element of Value for each number.
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
              OpSchema("gather")
                  .AttrIn("Axis", {"axis"})
                  .In("Index")
                  .In("X")
                  .Out("Out")
                  .Attr("axis", 0)
                  .Infer(Picked("axis")),
              {{"Index", "X"}, {"Out"}, {"X"}});
  AddWithGrad(
      schemas,
      OpSchema("index_select").In("Index").In("X").Out("Out").Attr("dim", 0).Infer(Picked("dim")),
      {{"Index", "X"}, {"Out"}, {"X"}});
  OpSchema scatter = OpSchema("scatter")
                         .In("Ids")
                         .In("Updates")
                         .In("X")
                         .Out("Out")
                         .Attr("overwrite", true)
                         .Infer(Updated("Ids", "Updates", /*has_axis=*/false));
  schemas->Add(GradSchema(scatter, "scatter_grad", {{"Ids", "Updates"}, {"Out"}, {"Updates", "X"}},
                          UpdatedGrad("Ids", "Updates", /*has_axis=*/false)));
  schemas->Add(std::move(scatter));
  OpSchema index_add = OpSchema("index_add")
                           .In("AddValue")
                           .In("Index")
                           .In("X")
                           .Out("Out")
                           .Attr("axis", 0)
                           .Infer(Updated("Index", "AddValue", /*has_axis=*/true));
  schemas->Add(GradSchema(index_add, "index_add_grad",
                          {{"AddValue", "Index"}, {"Out"}, {"AddValue", "X"}},
                          UpdatedGrad("Index", "AddValue", /*has_axis=*/true)));
  schemas->Add(std::move(index_add));
  AddWithGrad(schemas, OpSchema("gather_nd").In("Index").In("X").Out("Out").Infer(InferGatherNd),
              {{"Index", "X"}, {"Out"}, {"X"}});
  OpSchema index_put = OpSchema("index_put")
                           .In("indices", OpSchema::kDuplicable)
                           .In("value")
                           .In("x")
                           .Out("out")
                           .Attr("accumulate", false)
                           .Infer(InOrder({SameDType("x", "value"), PutParts("x", "out")}));
  schemas->Add(GradSchema(index_put, "index_put_grad",
                          {{"indices", "value", "x"}, {"out"}, {"value", "x"}},
                          PutParts("out@GRAD", "x@GRAD")));
  schemas->Add(std::move(index_put));
  OpSchema scatter_nd = OpSchema("scatter_nd_add")
                            .In("Index")
                            .In("Updates")
                            .In("X")
                            .Out("Out")
                            .Infer(ScatteredNd("X", "Out"));
  schemas->Add(GradSchema(scatter_nd, "scatter_nd_add_grad",
                          {{"Index", "Updates"}, {"Out"}, {"Updates", "X"}},
                          ScatteredNd("Out@GRAD", "X@GRAD")));
  schemas->Add(std::move(scatter_nd));
  AddWithGrad(schemas,
              OpSchema("index_sample")
                  .In("Index")
                  .In("X")
                  .Out("Out")
                  .Infer(TakenAlong("X", "Out", nullptr)),
              {{"Index", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("take_along_axis")
                  .In("Index")
                  .In("Input")
                  .Out("Result")
                  .Attr("Axis", 0)
                  .Infer(TakenAlong("Input", "Result", "Axis")),
              {{"Index", "Input"}, {"Result"}, {"Input"}});
  AddWithGrad(schemas,
              OpSchema("put_along_axis")
                  .In("Index")
                  .In("Input")
                  .In("Value")
                  .Out("Result")
                  .Attr("Axis", 0)
                  .Attr("Include_self", true)
                  .Attr("Reduce", "assign")
                  .Infer(InOrder({SameDType("Input", "Value"), InferPutAlong})),
              {{"Index", "Input", "Value", "Result"}, {"Result"}, {"Input", "Value"}});
}

}  // namespace weft
