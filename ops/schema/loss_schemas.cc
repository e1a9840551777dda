// Losses with dedicated ops.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Logits with one element along the axis of the classes: the loss, and labels that are class
// numbers.
absl::StatusOr<Dims> PerExampleDims(const InferContext& context, const TensorType& logits) {
  WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", context.attrs().Int("axis"),
                                                    logits.dims.size()));
  Dims dims = logits.dims;
  dims[axis] = 1;
  return dims;
}

absl::Status CheckLabel(const InferContext& context, const TensorType& logits,
                        const Dims& per_example) {
  const TensorType* label = context.Input("Label");
  if (label == nullptr) return absl::OkStatus();
  if (context.attrs().Bool("soft_label")) {
    if (label->dtype == logits.dtype && DimsFit(label->dims, logits.dims)) return absl::OkStatus();
    return context.InputError("Label", absl::StrCat(ToString(logits), " as the logits"));
  }
  const bool is_number = label->dtype != DType::kBool && !IsFloating(label->dtype);
  if (is_number && DimsFit(label->dims, per_example)) return absl::OkStatus();
  return context.InputError(
      "Label", absl::StrCat("class numbers of dimensions ", DimsToString(per_example)));
}

absl::Status InferSoftmaxCrossEntropy(InferContext& context) {
  const TensorType* logits = context.Input("Logits");
  if (logits == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Dims loss, PerExampleDims(context, *logits));
  WEFT_RETURN_IF_ERROR(CheckLabel(context, *logits, loss));
  context.SetOutput("Softmax", *logits);
  context.SetOutput("Loss", {logits->dtype, loss});
  return absl::OkStatus();
}

absl::Status InferSoftmaxCrossEntropyGrad(InferContext& context) {
  const TensorType* softmax = context.Input("Softmax");
  if (softmax == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Dims loss, PerExampleDims(context, *softmax));
  WEFT_RETURN_IF_ERROR(CheckLabel(context, *softmax, loss));
  const TensorType* grad = context.Input("Loss@GRAD");
  if (grad != nullptr && !DimsFit(grad->dims, loss)) {
    return context.InputError("Loss@GRAD",
                              absl::StrCat("dimensions ", DimsToString(loss), " of the loss"));
  }
  context.SetOutput("Logits@GRAD", *softmax);
  return absl::OkStatus();
}

OpSchema WithSoftmaxAttrs(OpSchema schema) {
  return std::move(schema)
      .Attr("axis", -1)
      .Attr("ignore_index", -100)
      .Attr("numeric_stable_mode", true)
      .Attr("soft_label", false)
      .Attr("use_softmax", true);
}

// Like the first input; the others have its type.
OpSchema::InferFn LikeAll(const char* first, std::vector<const char*> others,
                          std::vector<const char*> outputs) {
  return [=](InferContext& context) -> absl::Status {
    for (const char* other : others) WEFT_RETURN_IF_ERROR(SameType(first, other)(context));
    const TensorType* type = context.Input(first);
    for (const char* output : outputs) {
      if (type != nullptr) context.SetOutput(output, *type);
    }
    return absl::OkStatus();
  };
}

absl::Status InferKlDiv(InferContext& context) {
  const std::string& reduction = context.attrs().String("reduction");
  if (reduction != "none" && reduction != "sum" && reduction != "mean" &&
      reduction != "batchmean") {
    return context.AttrError("reduction", "none, sum, mean or batchmean", reduction);
  }
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.empty()) return context.InputError("X", "at least one dimension");
  context.SetOutput("Loss", {x->dtype, reduction == "none" ? x->dims : Dims()});
  return absl::OkStatus();
}

// Y has one element for every row of X.
absl::Status InferCrossEntropy(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.empty()) return context.InputError("X", "rows of classes");
  TensorType y = *x;
  y.dims.back() = 1;
  const TensorType* label = context.Input("Label");
  const bool is_soft = context.attrs().Has("soft_label") && context.attrs().Bool("soft_label");
  if (label != nullptr) {
    const bool fits = is_soft ? label->dtype == x->dtype && DimsFit(label->dims, x->dims)
                              : DimFits(Product(label->dims), Product(y.dims));
    if (!fits) {
      return context.InputError(
          "Label",
          is_soft ? ToString(*x) : absl::StrCat("a class for each row of ", DimsToString(x->dims)));
    }
  }
  context.SetOutput("Y", y);
  context.SetOutput("MatchX", y);
  context.SetOutput("XShape", ToXShape(*x));
  return absl::OkStatus();
}

// X@GRAD has the dims that XShape keeps.
absl::Status InferCrossEntropyGrad2(InferContext& context) {
  const TensorType* xshape = context.Input("XShape");
  const TensorType* grad = context.Input("Y@GRAD");
  if (!context.HasInput("XShape")) return absl::InvalidArgumentError("input XShape: missing");
  if (xshape == nullptr || grad == nullptr) return absl::OkStatus();
  if (xshape->dims.size() < 2) return context.InputError("XShape", "the shape of X behind a 0");
  const TensorType x = {grad->dtype, Dims(xshape->dims.begin() + 1, xshape->dims.end())};
  const int64_t rows = Product(absl::MakeSpan(x.dims).first(x.dims.size() - 1));
  for (const char* slot : {"Y@GRAD", "MatchX", "Label"}) {
    const TensorType* type = context.Input(slot);
    if (type != nullptr && !DimFits(Product(type->dims), rows)) {
      return context.InputError(slot, absl::StrCat(rows, " elements"));
    }
  }
  context.SetOutput("X@GRAD", x);
  return absl::OkStatus();
}

absl::Status InferNllLoss(InferContext& context) {
  const std::string& reduction = context.attrs().String("reduction");
  if (reduction != "none" && reduction != "sum" && reduction != "mean") {
    return context.AttrError("reduction", "none, sum or mean", reduction);
  }
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.size() != 2 && x->dims.size() != 4) {
    return context.InputError("X", "two or four dimensions");
  }
  Dims rows = x->dims;
  rows.erase(rows.begin() + 1);
  const TensorType* label = context.Input("Label");
  if (label != nullptr && !DimsFit(label->dims, rows)) {
    return context.InputError("Label", absl::StrCat("dimensions ", DimsToString(rows)));
  }
  const TensorType* weight = context.Input("Weight");
  if (weight != nullptr && !DimsFit(weight->dims, {x->dims[1]})) {
    return context.InputError("Weight", absl::StrCat("dimensions [", x->dims[1], "]"));
  }
  context.SetOutput("Out", {x->dtype, reduction == "none" ? rows : Dims()});
  context.SetOutput("Total_weight", {x->dtype, {}});
  return absl::OkStatus();
}

absl::Status InferLabelSmooth(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (x->dims.empty()) return context.InputError("X", "rows of classes");
  const TensorType* prior = context.Input("PriorDist");
  if (prior != nullptr && !DimFits(Product(prior->dims), x->dims.back())) {
    return context.InputError("PriorDist", absl::StrCat(x->dims.back(), " elements"));
  }
  context.SetOutput("Out", *x);
  return absl::OkStatus();
}

}  // namespace

void AddLossSchemas(OpSchemaTable* schemas) {
  AddWithGrad(
      schemas,
      OpSchema("bce_loss").In("Label").In("X").Out("Out").Infer(LikeAll("X", {"Label"}, {"Out"})),
      {{"Label", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("hinge_loss")
                  .In("Labels")
                  .In("Logits")
                  .Out("Loss")
                  .Infer(LikeAll("Logits", {"Labels"}, {"Loss"})),
              {{"Labels", "Logits"}, {"Loss"}, {"Logits"}});
  AddWithGrad(schemas,
              OpSchema("log_loss")
                  .In("Labels")
                  .In("Predicted")
                  .Out("Loss")
                  .Attr("epsilon", 1e-4f)
                  .Infer(LikeAll("Predicted", {"Labels"}, {"Loss"})),
              {{"Labels", "Predicted"}, {"Loss"}, {"Predicted"}});
  AddWithGrad(schemas,
              OpSchema("rank_loss")
                  .In("Label")
                  .In("Left")
                  .In("Right")
                  .Out("Out")
                  .Infer(LikeAll("Label", {"Left", "Right"}, {"Out"})),
              {{"Label", "Left", "Right"}, {"Out"}, {"Left", "Right"}});
  OpSchema huber = OpSchema("huber_loss")
                       .In("X")
                       .In("Y")
                       .Out("Out")
                       .Out("Residual", OpSchema::kLooseType)
                       .RequiredAttr("delta", 1.0f)
                       .Infer(LikeAll("X", {"Y"}, {"Out", "Residual"}));
  schemas->Add(GradSchema(huber, "huber_loss_grad", {{"Residual"}, {"Out"}, {"X", "Y"}},
                          LikeAll("Residual", {"Out@GRAD"}, {"X@GRAD", "Y@GRAD"})));
  schemas->Add(std::move(huber));
  AddWithGrad(schemas,
              OpSchema("kldiv_loss")
                  .In("Target")
                  .In("X")
                  .Out("Loss")
                  .Attr("reduction", "mean")
                  .Infer(InOrder({SameType("X", "Target"), InferKlDiv})),
              {{"Target", "X"}, {"Loss"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("cross_entropy")
                  .In("Label")
                  .In("X")
                  .Out("Y")
                  .Attr("ignore_index", -100)
                  .Attr("soft_label", false)
                  .Infer(InferCrossEntropy),
              {{"Label", "X"}, {"Y"}, {"X"}});
  OpSchema cross_entropy2 = OpSchema("cross_entropy2")
                                .In("Label")
                                .In("X")
                                .Out("MatchX", OpSchema::kLooseType)
                                .Out("XShape", OpSchema::kOptional | OpSchema::kLooseType)
                                .Out("Y")
                                .Attr("ignore_index", -100)
                                .Infer(InferCrossEntropy);
  schemas->Add(GradSchema(cross_entropy2, "cross_entropy_grad2",
                          {{"Label", "MatchX", "XShape"}, {"Y"}, {"X"}}, InferCrossEntropyGrad2));
  schemas->Add(std::move(cross_entropy2));
  AddWithGrad(schemas,
              OpSchema("nll_loss")
                  .In("Label")
                  .In("Weight", OpSchema::kOptional)
                  .In("X")
                  .Out("Out")
                  .Out("Total_weight")
                  .Attr("ignore_index", int64_t{-100})
                  .Attr("reduction", "mean")
                  .Infer(InferNllLoss),
              {{"Label", "Total_weight", "Weight", "X"}, {"Out"}, {"X"}});
  OpSchema smooth = OpSchema("label_smooth")
                        .In("PriorDist", OpSchema::kOptional)
                        .In("X")
                        .Out("Out")
                        .Attr("epsilon", 0.0f)
                        .Infer(InferLabelSmooth);
  schemas->Add(
      GradSchema(smooth, "label_smooth_grad", {{}, {"Out"}, {"X"}}, OutputsLike("Out@GRAD")));
  schemas->Add(std::move(smooth));
  schemas->Add(WithSoftmaxAttrs(OpSchema("softmax_with_cross_entropy")
                                    .In("Label")
                                    .In("Logits")
                                    .Out("Loss")
                                    .Out("Softmax")
                                    .Infer(InferSoftmaxCrossEntropy)));
  schemas->Add(WithSoftmaxAttrs(OpSchema("softmax_with_cross_entropy_grad")
                                    .In("Label")
                                    .In("Loss@GRAD")
                                    .In("Softmax")
                                    .Out("Logits@GRAD")
                                    .Infer(InferSoftmaxCrossEntropyGrad)));
  // With `normalize` the loss is divided by the number of labels that count: not elementwise.
  schemas->Add(
      OpSchema("sigmoid_cross_entropy_with_logits")
          .In("Label")
          .In("X")
          .In("pos_weight", OpSchema::kOptional)
          .Out("Out")
          .Attr("ignore_index", -100)
          .Attr("normalize", false)
          .Infer(InOrder({SameType("X", "Label"), SameType("X", "pos_weight"), OutputsLike("X")})));
  schemas->Add(OpSchema("sigmoid_cross_entropy_with_logits_grad")
                   .In("Label")
                   .In("Out@GRAD")
                   .In("X")
                   .In("pos_weight", OpSchema::kOptional)
                   .Out("X@GRAD")
                   .Attr("ignore_index", -100)
                   .Attr("normalize", false)
                   .Infer(InOrder({SameType("X", "Label"), SameType("X", "pos_weight"),
                                   SameType("X", "Out@GRAD"), GradsLikeInputs()})));
}

}  // namespace weft
