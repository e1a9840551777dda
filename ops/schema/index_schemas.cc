// Elements picked by numbers that a tensor holds.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional;

bool IsIndex(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kInt32; }

// Both known, Index of whole numbers.
absl::StatusOr<bool> BothKnown(const InferContext& context, const char* x, const char* index) {
  const TensorType* type = context.Input(index);
  if (type != nullptr && !IsIndex(type->dtype)) {
    return context.InputError(index, "int64 or int32 numbers");
  }
  return context.Input(x) != nullptr && type != nullptr;
}

absl::Status CheckMask(const InferContext& context, const char* mask, const char* x) {
  const TensorType* type = context.Input(mask);
  const TensorType* like = context.Input(x);
  if (type == nullptr || like == nullptr) return absl::OkStatus();
  if (type->dtype == DType::kBool && DimsFit(type->dims, like->dims)) return absl::OkStatus();
  return context.InputError(mask, absl::StrCat("bool", DimsToString(like->dims)));
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

absl::Status InferGatherTree(InferContext& context) {
  const TensorType* ids = context.Input("Ids");
  if (ids == nullptr) return absl::OkStatus();
  if (!IsIndex(ids->dtype) || ids->dims.size() != 3) {
    return context.InputError("Ids", "int64 or int32 numbers [steps, batch, beams]");
  }
  context.SetOutput("Out", *ids);
  return absl::OkStatus();
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

absl::Status InferWhere(InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckMask(context, "Condition", "X"));
  if (const TensorType* x = context.Input("X")) context.SetOutput("Out", *x);
  return absl::OkStatus();
}

absl::Status InferWhereIndex(InferContext& context) {
  const TensorType* condition = context.Input("Condition");
  if (condition == nullptr) return absl::OkStatus();
  context.SetOutput("Out", {DType::kInt64, {-1, static_cast<int64_t>(condition->dims.size())}});
  return absl::OkStatus();
}

absl::Status InferMaskedSelect(InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckMask(context, "Mask", "X"));
  if (const TensorType* x = context.Input("X")) context.SetOutput("Y", {x->dtype, {-1}});
  return absl::OkStatus();
}

OpSchema::InferFn Triangle(const char* x_slot, const char* out_slot) {
  return [=](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input(x_slot);
    if (x == nullptr) return absl::OkStatus();
    if (x->dims.size() < 2) return context.InputError(x_slot, "at least two dimensions");
    context.SetOutput(out_slot, *x);
    return absl::OkStatus();
  };
}

absl::Status InferOneHot(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr || HasAttrInput(context)) return absl::OkStatus();
  const OpAttrs& attrs = context.attrs();
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(attrs.Int("dtype")));
  if (!dtype.has_value()) {
    return context.AttrError("dtype", "the number of an element type",
                             absl::StrCat(attrs.Int("dtype")));
  }
  if (attrs.Int("depth") < 1 || attrs.Int("depth") > kMaxElements) {
    return context.AttrError("depth", "1 or more", absl::StrCat(attrs.Int("depth")));
  }
  TensorType out = {*dtype, x->dims};
  out.dims.push_back(attrs.Int("depth"));
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::Status InferMultiplex(InferContext& context) {
  const TensorType* ids = context.Input("Ids");
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() < 2) return context.InputError("X", "at least two dimensions");
  for (size_t i = 1; i < context.NumInputs("X"); ++i) {
    const TensorType* other = context.Input("X", i);
    if (other != nullptr && *other != *x) {
      return context.InputError("X", i, absl::StrCat(ToString(*x), " as the others"));
    }
  }
  if (ids != nullptr &&
      (!IsIndex(ids->dtype) || ids->dims.empty() || !DimFits(Product(ids->dims), ids->dims[0]) ||
       (x->dims[0] != -1 && ids->dims[0] > x->dims[0]))) {
    return context.InputError("Ids", "a number for each of the first rows");
  }
  TensorType out = *x;
  if (ids != nullptr) out.dims[0] = ids->dims[0];
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::Status InferSearchSorted(InferContext& context) {
  const TensorType* sequence = context.Input("SortedSequence");
  const TensorType* values = context.Input("Values");
  if (sequence == nullptr || values == nullptr) return absl::OkStatus();
  if (sequence->dims.empty()) return context.InputError("SortedSequence", "at least one dimension");
  if (sequence->dims.size() > 1) {
    Dims expected = sequence->dims;
    expected.back() = -1;
    if (!DimsFit(values->dims, expected)) {
      return context.InputError("Values", absl::StrCat("dimensions ", DimsToString(expected)));
    }
  }
  const bool narrow = context.attrs().Bool("out_int32");
  context.SetOutput("Out", {narrow ? DType::kInt32 : DType::kInt64, values->dims});
  return absl::OkStatus();
}

absl::Status InferBinCount(InferContext& context) {
  const int64_t least = context.attrs().Int("minlength");
  if (least < 0 || least > kMaxElements) {
    return context.AttrError("minlength", "0 or more", absl::StrCat(least));
  }
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (!IsIndex(x->dtype) || x->dims.size() != 1) {
    return context.InputError("X", "one dimension of int64 or int32 numbers");
  }
  DType dtype = DType::kInt64;
  if (context.HasInput("Weights")) {
    const TensorType* weights = context.Input("Weights");
    if (weights == nullptr) return absl::OkStatus();
    if (!DimsFit(weights->dims, x->dims)) {
      return context.InputError("Weights", absl::StrCat("dimensions ", DimsToString(x->dims)));
    }
    dtype = weights->dtype == DType::kFloat32 ? DType::kFloat32 : DType::kFloat64;
  }
  context.SetOutput("Out", {dtype, {-1}});
  return absl::OkStatus();
}

absl::Status InferUnique(InferContext& context) {
  const OpAttrs& attrs = context.attrs();
  const int64_t number = attrs.Int("dtype");
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(number));
  if (dtype != DType::kInt64 && dtype != DType::kInt32) {
    return context.AttrError("dtype", "the number of int32 or int64", absl::StrCat(number));
  }
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const std::vector<int64_t> axes = attrs.Ints("axis");
  TensorType out = {x->dtype, {-1}};
  int64_t layers = Product(x->dims);
  if (axes.size() > 1) return context.AttrError("axis", "one or none", DimsToString(axes));
  if (!axes.empty()) {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", axes[0], x->dims.size()));
    layers = x->dims[axis];
    out.dims = x->dims;
    out.dims[axis] = -1;
  }
  context.SetOutput("Out", out);
  if (attrs.Bool("return_index")) context.SetOutput("Indices", {*dtype, {-1}});
  if (attrs.Bool("return_inverse")) context.SetOutput("Index", {*dtype, {layers}});
  if (attrs.Bool("return_counts")) context.SetOutput("Counts", {*dtype, {-1}});
  return absl::OkStatus();
}

// A row for each number of a segment; SummedIds is of use for means only.
absl::Status InferSegmentPool(InferContext& context) {
  const TensorType* ids = context.Input("SegmentIds");
  const TensorType* x = context.Input("X");
  if (x != nullptr && x->dims.empty()) return context.InputError("X", "a row for each number");
  if (ids != nullptr && (!IsIndex(ids->dtype) || ids->dims.size() != 1 ||
                         (x != nullptr && !DimFits(ids->dims[0], x->dims[0])))) {
    return context.InputError("SegmentIds", "an int64 or int32 number for each row of X");
  }
  if (x == nullptr) return absl::OkStatus();
  TensorType out = *x;
  out.dims[0] = -1;
  context.SetOutput("Out", out);
  if (context.attrs().String("pooltype") == "MEAN") {
    context.SetOutput("SummedIds", {x->dtype, {-1, 1}});
  }
  return absl::OkStatus();
}

absl::Status InferAccuracy(InferContext& context) {
  const TensorType* indices = context.Input("Indices");
  if (indices != nullptr && indices->dims.empty()) {
    return context.InputError("Indices", "a row per sample");
  }
  context.SetOutput("Accuracy", {DType::kFloat32, {}});
  context.SetOutput("Correct", {DType::kInt32, {}});
  context.SetOutput("Total", {DType::kInt32, {}});
  return absl::OkStatus();
}

// StatPos and StatNeg count samples by prediction: num_thresholds + 1 counters, and, where
// slide_steps is not 0, such counters for each of the last steps before their sum, and the number
// of steps after it.
absl::Status InferAuc(InferContext& context) {
  const OpAttrs& attrs = context.attrs();
  const int64_t thresholds = attrs.Int("num_thresholds"), steps = attrs.Int("slide_steps");
  if (thresholds < 1) {
    return context.AttrError("num_thresholds", "1 or more", absl::StrCat(thresholds));
  }
  if (steps < 0) return context.AttrError("slide_steps", "0 or more", absl::StrCat(steps));
  const int64_t counters =
      steps == 0 ? thresholds + 1 : AddDim(MulDim(steps + 1, thresholds + 1), 1);
  for (const char* slot : {"StatPos", "StatNeg"}) {
    const TensorType* stat = context.Input(slot);
    if (stat == nullptr) continue;
    if (stat->dtype != DType::kInt64 || !DimFits(Product(stat->dims), counters)) {
      return context.InputError(slot, absl::StrCat(counters, " int64 counters"));
    }
    context.SetOutput(absl::StrCat(slot, "Out"), *stat);
  }
  const TensorType* predict = context.Input("Predict");
  const TensorType* label = context.Input("Label");
  if (predict != nullptr && (predict->dims.size() != 2 || predict->dims[1] == 0)) {
    return context.InputError("Predict", "a row per sample");
  }
  if (predict != nullptr && label != nullptr && !DimFits(Product(label->dims), predict->dims[0])) {
    return context.InputError("Label", absl::StrCat(predict->dims[0], " labels"));
  }
  context.SetOutput("AUC", {DType::kFloat64, {}});
  return absl::OkStatus();
}

}  // namespace

void AddIndexSchemas(OpSchemaTable* schemas) {
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
  schemas->Add(OpSchema("gather_tree")
                   .In("Ids")
                   .In("Parents")
                   .Out("Out")
                   .Infer(InOrder({SameType("Ids", "Parents"), InferGatherTree})));
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

  AddWithGrad(schemas,
              OpSchema("where")
                  .In("Condition")
                  .In("X")
                  .In("Y")
                  .Out("Out")
                  .With(Trait::kElementwise)
                  .With(Trait::kRowSplittable)
                  .Infer(InOrder({SameType("X", "Y"), InferWhere})),
              {{"Condition", "X", "Y"}, {"Out"}, {"X", "Y"}});
  schemas->Add(OpSchema("where_index").In("Condition").Out("Out").Infer(InferWhereIndex));
  AddWithGrad(schemas,
              OpSchema("masked_select").In("Mask").In("X").Out("Y").Infer(InferMaskedSelect),
              {{"Mask", "X"}, {"Y"}, {"X"}});
  schemas->Add(OpSchema("searchsorted")
                   .In("SortedSequence")
                   .In("Values")
                   .Out("Out")
                   .Attr("out_int32", false)
                   .Attr("right", false)
                   .Infer(InOrder({SameDType("SortedSequence", "Values"), InferSearchSorted})));
  schemas->Add(OpSchema("bincount")
                   .In("Weights", kOptional)
                   .In("X")
                   .Out("Out")
                   .Attr("minlength", 0)
                   .Infer(InferBinCount));
  schemas->Add(OpSchema("unique")
                   .In("X")
                   .Out("Counts", kOptional)
                   .Out("Index", kOptional)
                   .Out("Indices", kOptional)
                   .Out("Out")
                   .Attr("axis", Ints{})
                   .Attr("dtype", static_cast<int>(DType::kInt64))
                   .Attr("is_sorted", false)
                   .Attr("return_counts", false)
                   .Attr("return_index", false)
                   .Attr("return_inverse", false)
                   .Infer(InferUnique));
  AddWithGrad(schemas,
              OpSchema("segment_pool")
                  .In("SegmentIds")
                  .In("X")
                  .Out("Out")
                  .Out("SummedIds", kOptional)
                  .Attr("pooltype", "SUM")
                  .Infer(InferSegmentPool),
              {{"Out", "SegmentIds", "SummedIds", "X"}, {"Out"}, {"X"}});
  OpSchema triangle = OpSchema("tril_triu")
                          .In("X")
                          .Out("Out")
                          .Attr("diagonal", 0)
                          .Attr("lower", true)
                          .Infer(Triangle("X", "Out"));
  schemas->Add(
      GradSchema(triangle, "tril_triu_grad", {{}, {"Out"}, {"X"}}, Triangle("Out@GRAD", "X@GRAD")));
  schemas->Add(std::move(triangle));

  schemas->Add(OpSchema("one_hot_v2")
                   .In("X")
                   .AttrIn("depth_tensor", {"depth"})
                   .Out("Out")
                   .Attr("allow_out_of_range", false)
                   .Attr("depth", -1)
                   .Attr("dtype", static_cast<int>(DType::kFloat32))
                   .Infer(InferOneHot));
  schemas->Add(OpSchema("multiplex")
                   .In("Ids")
                   .In("X", OpSchema::kDuplicable)
                   .Out("Out")
                   .Infer(InferMultiplex));
  schemas->Add(OpSchema("shard_index")
                   .In("X")
                   .Out("Out")
                   .Attr("ignore_value", -1)
                   .RequiredAttr("index_num", 1)
                   .RequiredAttr("nshards", 1)
                   .RequiredAttr("shard_id", 0)
                   .Infer(OutputsLike("X")));
  schemas->Add(OpSchema("accuracy")
                   .In("Indices")
                   .In("Label")
                   .In("Out")
                   .Out("Accuracy")
                   .Out("Correct", kOptional)
                   .Out("Total", kOptional)
                   .Infer(InferAccuracy));
  schemas->Add(OpSchema("auc")
                   .In("InsTagWeight", kOptional)
                   .In("Label")
                   .In("Predict")
                   .In("StatNeg")
                   .In("StatPos")
                   .Out("AUC")
                   .Out("StatNegOut")
                   .Out("StatPosOut")
                   .Attr("curve", "ROC")
                   .Attr("num_thresholds", 8191)
                   .Attr("slide_steps", 1)
                   .Infer(InferAuc));
}

}  // namespace weft
