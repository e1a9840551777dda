// Layers and losses of images and features that Paddle 1 has ops for.
#include <cmath>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "ops/schema/batch_context.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/extra/paddle1_parts.h"
#include "ops/schema/extra/prior_boxes.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// [rows, features], a class of each row, and a center of each class.
absl::Status InferCenterLoss(InferContext& context, const TensorType& x) {
  if (x.dims.size() != 2) return context.InputError("X", "a matrix");
  const int64_t classes = context.attrs().Int("cluster_num");
  WEFT_RETURN_IF_ERROR(CheckElements(context, "Label", x.dims[0]));
  WEFT_RETURN_IF_ERROR(CheckElements(context, "CenterUpdateRate", 1));
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Centers", {classes, x.dims[1]}));
  context.SetOutput("CentersOut", {x.dtype, {classes, x.dims[1]}});
  context.SetOutput("SampleCenterDiff", x);
  context.SetOutput("Loss", {x.dtype, {x.dims[0], 1}});
  return absl::OkStatus();
}

void CenterLoss(BatchContext& context) {
  batch::Rows({"X", "Label"})(context);
  const bool is_updated = context.attrs().Bool("need_update");
  context.Set("CentersOut", is_updated ? BatchRelation::Unrelated() : context.In("Centers"));
}

absl::Status InferFocalLoss(InferContext& context, const TensorType& x) {
  if (x.dims.size() != 2) return context.InputError("X", "[samples, classes]");
  WEFT_RETURN_IF_ERROR(CheckElements(context, "Label", x.dims[0]));
  WEFT_RETURN_IF_ERROR(CheckElements(context, "FgNum", 1));
  context.SetOutput("Out", x);
  return absl::OkStatus();
}

// Squares of blocksize pixels go to channels.
absl::Status InferSpaceToDepth(InferContext& context, const TensorType& x) {
  const int64_t size = context.attrs().Int("blocksize");
  bool fits = x.dims.size() == 4;
  for (size_t d = 1; fits && d < 4; ++d) {
    fits = x.dims[d] == -1 || x.dims[d] % (d == 1 ? size * size : size) == 0;
  }
  if (!fits) {
    return context.InputError(
        "X", absl::StrCat("[batch, channels, height, width], with channels in multiples of ",
                          size * size, ", and height and width of ", size));
  }
  Dims dims = x.dims;
  dims[1] = MulDim(dims[1], size * size);
  for (size_t d : {2, 3}) dims[d] = dims[d] == -1 ? -1 : dims[d] / size;
  context.SetOutput("Out", {x.dtype, dims});
  return absl::OkStatus();
}

// [batch, steps, features]; [steps of all sequences, features] with level-of-detail offsets.
absl::Status CheckPositionEncoding(InferContext& context, const TensorType& x) {
  if (x.dims.size() != 2 && x.dims.size() != 3) {
    return context.InputError("X", "[batch, steps, features]");
  }
  if (x.dims.back() != -1 && x.dims.back() % 2 != 0) {
    return context.InputError("X", "an even number of features");
  }
  return absl::OkStatus();
}

// [batch, channels of X, channels of Y].
absl::Status InferFsp(InferContext& context, const TensorType& x, const TensorType& y) {
  if (x.dims.size() != 4) return context.InputError("X", "[batch, channels, height, width]");
  if (!DimsFit(y.dims, {x.dims[0], -1, x.dims[2], x.dims[3]})) {
    return context.InputError(
        "Y", absl::StrCat("four dimensions, with the batch, height and width of X, ",
                          DimsToString(x.dims)));
  }
  context.SetOutput("Out", {x.dtype, {x.dims[0], x.dims[1], y.dims[1]}});
  return absl::OkStatus();
}

// Y fits into a tensor of type `x`.
absl::Status CheckPadLike(const InferContext& context, const TensorType& x, const TensorType& y) {
  bool fits = x.dims.size() == y.dims.size();
  for (size_t d = 0; fits && d < x.dims.size(); ++d) {
    fits = x.dims[d] == -1 || y.dims[d] == -1 || y.dims[d] <= x.dims[d];
  }
  if (!fits) {
    return context.InputError("Y", absl::StrCat("at most dimensions ", DimsToString(x.dims)));
  }
  return absl::OkStatus();
}

absl::Status InferPadLike(InferContext& context, const TensorType& x, const TensorType& y) {
  WEFT_RETURN_IF_ERROR(CheckPadLike(context, x, y));
  context.SetOutput("Out", {y.dtype, x.dims});
  return absl::OkStatus();
}

absl::Status InferPriorBox(InferContext& context, const TensorType& input) {
  WEFT_RETURN_IF_ERROR(CheckImage(context, "Input"));
  WEFT_RETURN_IF_ERROR(CheckImage(context, "Image"));
  const PriorBoxes boxes(context.attrs());
  if (boxes.min_sizes.empty() || !absl::c_all_of(boxes.min_sizes, [](double s) { return s > 0; })) {
    return context.AttrError("min_sizes", "positive sizes", absl::StrCat(boxes.min_sizes.size()));
  }
  if (!boxes.max_sizes.empty() && boxes.max_sizes.size() != boxes.min_sizes.size()) {
    return context.AttrError("max_sizes", absl::StrCat(boxes.min_sizes.size(), " sizes, or none"),
                             absl::StrCat(boxes.max_sizes.size()));
  }
  if (!absl::c_all_of(boxes.ratios, [](double ratio) { return ratio > 0; })) {
    return context.AttrError("aspect_ratios", "positive numbers", "one that is not");
  }
  if (boxes.variances.size() != 4) {
    return context.AttrError("variances", "four numbers", absl::StrCat(boxes.variances.size()));
  }
  const Dims dims = {input.dims[2], input.dims[3], boxes.Count(), 4};
  context.SetOutput("Boxes", {input.dtype, dims});
  context.SetOutput("Variances", {input.dtype, dims});
  return absl::OkStatus();
}

// Each X has the same rows and columns.
absl::StatusOr<ColumnPart> CheckColumnPart(InferContext& context, const TensorType& x) {
  if (x.dims.size() != 2) return context.InputError("X", "[rows, columns]");
  for (size_t i = 1; i < context.NumInputs("X"); ++i) {
    const TensorType* other = context.Input("X", i);
    if (other != nullptr && (other->dtype != x.dtype || !DimsFit(other->dims, x.dims))) {
      return context.InputError("X", i, absl::StrCat(ToString(x), " as the others"));
    }
  }
  const ColumnPart part(context.attrs(), x.dims[1]);
  if (x.dims[1] != -1 && !part.IsIn(x.dims[1])) {
    return context.AttrError("start_index", absl::StrCat("a part of ", x.dims[1], " columns"),
                             absl::StrCat(part.count, " columns from ", part.begin));
  }
  return part;
}

absl::Status InferPartialConcat(InferContext& context, const TensorType& x) {
  WEFT_ASSIGN_OR_RETURN(const ColumnPart part, CheckColumnPart(context, x));
  const int64_t count = x.dims[1] == -1 ? -1 : part.count;
  const int64_t inputs = static_cast<int64_t>(context.NumInputs("X"));
  context.SetOutput("Out", {x.dtype, {x.dims[0], MulDim(count, inputs)}});
  return absl::OkStatus();
}

absl::Status InferPartialSum(InferContext& context, const TensorType& x) {
  WEFT_ASSIGN_OR_RETURN(const ColumnPart part, CheckColumnPart(context, x));
  context.SetOutput("Out", {x.dtype, {x.dims[0], x.dims[1] == -1 ? -1 : part.count}});
  return absl::OkStatus();
}

// A row for each window, one image after the other.
absl::Status InferImageToSequence(InferContext& context, const TensorType& x) {
  WEFT_RETURN_IF_ERROR(CheckImage(context, "X"));
  const std::vector<int64_t> kernels = context.attrs().Ints("kernels"),
                             strides = context.attrs().Ints("strides"),
                             paddings = context.attrs().Ints("paddings");
  const auto is_positive = [](int64_t number) { return number > 0; };
  if (kernels.size() != 2 || strides.size() != 2 || paddings.size() != 4 ||
      !absl::c_all_of(kernels, is_positive) || !absl::c_all_of(strides, is_positive) ||
      !absl::c_all_of(paddings, [](int64_t number) { return number >= 0; })) {
    return context.AttrError("kernels", "two sizes and strides, and four paddings", "others");
  }
  Dims dims = {x.dims[0], MulDim(x.dims[1], kernels[0] * kernels[1])};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t size = x.dims[2 + d], padded = size + paddings[d] + paddings[2 + d];
    if (size != -1 && padded < kernels[d]) {
      return context.InputError("X", absl::StrCat("at least a window of ", kernels[d]));
    }
    const int64_t places = size == -1 ? -1 : (padded - kernels[d]) / strides[d] + 1;
    dims[0] = MulDim(dims[0], places);
  }
  context.SetOutput("Out", {x.dtype, dims});
  return absl::OkStatus();
}

absl::Status InferFusedActivation(InferContext& context, const TensorType& x, const TensorType& y) {
  const FusedFunctions functions(context.attrs());
  if (!functions.AreKnown()) {
    return context.AttrError("functor_list",
                             "elementwise_add or _mul, and relu, scale, tanh or sigmoid",
                             absl::StrJoin(context.attrs().Strings("functor_list"), ", "));
  }
  if (!RepeatedY(x.dims, y.dims, context.attrs().Int("axis")).fits) {
    return context.InputError("Y", absl::StrCat("a part of dimensions ", DimsToString(x.dims)));
  }
  context.SetOutput("Out", x);
  if (context.attrs().Bool("save_intermediate_out")) {
    context.SetOutput("IntermediateOut", functions.is_unary_first ? y : x);
  }
  return absl::OkStatus();
}

void FusedActivation(BatchContext& context) {
  const absl::optional<Dims> x = context.InDims("X"), y = context.InDims("Y");
  const BatchRelation of_x = context.In("X"), of_y = context.In("Y");
  if (!x.has_value() || !y.has_value()) return;
  const bool has_rows = x->size() == y->size();  // Y, as X
  const bool is_same = of_x.IsReplicated() && of_y.IsReplicated();
  const bool are_rows =
      of_x == BatchRelation::Sharded(0) &&
      (has_rows ? of_y == of_x : of_y.IsReplicated() && context.attrs().Int("axis") != 0);
  if (!is_same && !are_rows) return;
  context.Set("Out", of_x);
  const bool is_of_y = FusedFunctions(context.attrs()).is_unary_first;
  context.Set("IntermediateOut", is_of_y ? of_y : of_x);
}

// Of heights and widths only, which every rank has.
void PriorBox(BatchContext& context) {
  for (BatchRelation in : context.inputs()) {
    if (!in.IsReplicated() && in != BatchRelation::Sharded(0)) return;
  }
  context.SetAll(BatchRelation::Replicated());
}

}  // namespace

void AddPaddle1LayerSchemas(OpSchemaTable* schemas) {
  AddWithGrad(
      schemas,
      OpSchema("center_loss",
               "CenterUpdateRate, Centers, Label, X -> CentersOut=Centers, Loss, SampleCenterDiff~")
          .RequiredAttr("cluster_num", 1, range::AtLeast(1))
          .RequiredAttr("need_update", true)
          .Infer(InOrder({SameDType("X", "Centers"), IfKnown("X", InferCenterLoss)}))
          .Batch({CenterLoss}),
      {{"SampleCenterDiff", "X"}, {"Loss"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("sigmoid_focal_loss", "FgNum, Label, X -> Out")
                  .Attr("alpha", 0.25f)
                  .Attr("gamma", 2.0f)
                  .Infer(IfKnown("X", InferFocalLoss))
                  .Batch({batch::Rows({"X", "Label"})}),
              {{"FgNum", "Label", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("space_to_depth", "X -> Out")
                  .RequiredAttr("blocksize", int64_t{2}, range::Between(2, 1 << 15))
                  .Infer(IfKnown("X", InferSpaceToDepth))
                  .Algebra(Algebra::kMove)
                  .Batch({batch::Rows({"X"}), Powers::kFirst}),
              {{"X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("add_position_encoding", "X -> Out")
                  .RequiredAttr("alpha", 1.0f)
                  .RequiredAttr("beta", 1.0f)
                  .Infer(InOrder({IfKnown("X", CheckPositionEncoding), Like("X", {"Out"})}))
                  .Batch({batch::Rows({"X"})}),
              {{}, {"Out"}, {"X"}}, OutputsLike("Out@GRAD"));
  AddWithGrad(schemas,
              OpSchema("fsp", "X, Y -> Out")
                  .Infer(InOrder({SameDType("X", "Y"), IfKnown("X", "Y", InferFsp)}))
                  .Batch({batch::Rows({"X", "Y"})}),
              {{"X", "Y"}, {"Out"}, {"X", "Y"}});
  AddWithGrad(schemas,
              OpSchema("pad_constant_like", "X, Y -> Out")
                  .Attr("pad_value", 0.0f)
                  .Infer(IfKnown("X", "Y", InferPadLike))
                  .Batch(batch::Unrelated("it may have more rows than Y")),
              {{"Y"}, {"Out"}, {"Y"}},
              InOrder({SameDType("Out@GRAD", "Y"), IfKnown("Out@GRAD", "Y", CheckPadLike),
                       GradsLikeInputs()}));
  for (const bool adds_up : {false, true}) {
    AddWithGrad(schemas,
                OpSchema(adds_up ? "partial_sum" : "partial_concat", "X* -> Out")
                    .Attr("length", -1)
                    .Attr("start_index", 0)
                    .Infer(IfKnown("X", adds_up ? InferPartialSum : InferPartialConcat))
                    .Batch({batch::Rows({"X"})}),
                {{"X+"}, {"Out"}, {"X"}});
  }
  AddWithGrad(schemas,
              OpSchema("im2sequence", "X, Y? -> Out")
                  .RequiredAttr("kernels", Ints{})
                  .Attr("out_stride", Ints{1, 1})
                  .Attr("paddings", Ints{0, 0, 0, 0})
                  .Attr("strides", Ints{1, 1})
                  .Infer(IfKnown("X", InferImageToSequence))
                  .Batch({batch::Rows({"X"})}),
              {{"X"}, {"Out"}, {"X"}});
  const auto fused = [](const char* type, const char* slots) {
    return OpSchema(type, slots)
        .Attr("axis", -1)
        .RequiredAttr("functor_list", Strings{})
        .Attr("save_intermediate_out", false)
        .Attr("scale", 0.0f);
  };
  const OpSchema::InferFn infer_fused =
      InOrder({SameDType("X", "Y"), IfKnown("X", "Y", InferFusedActivation)});
  schemas->Add(fused("fused_elemwise_activation", "X, Y -> IntermediateOut?, Out")
                   .Infer(infer_fused)
                   .Batch({FusedActivation}));
  schemas->Add(fused("fused_elemwise_activation_grad",
                     "IntermediateOut?, Out, Out@GRAD, X, Y -> IntermediateOut@GRAD?!, X@GRAD?, "
                     "Y@GRAD?")
                   .Infer(InOrder({GradOf(infer_fused), GradsLikeInputs()})));
  schemas->Add(OpSchema("prior_box", "Image, Input -> Boxes, Variances")
                   .Attr("aspect_ratios", Floats{})
                   .Attr("clip", true)
                   .Attr("flip", true)
                   .Attr("max_sizes", Floats{})
                   .Attr("min_max_aspect_ratios_order", false)
                   .RequiredAttr("min_sizes", Floats{})
                   .Attr("offset", 0.5f)
                   .Attr("step_h", 0.0f)
                   .Attr("step_w", 0.0f)
                   .RequiredAttr("variances", Floats{})
                   .Infer(IfKnown("Input", InferPriorBox))
                   .Batch({PriorBox, Powers::kAny}));
}

}  // namespace weft
