// Losses with dedicated ops.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The dims of the logits with one element along the axis of the classes: those of the loss, and of
// labels that are class numbers.
absl::StatusOr<Dims> PerExampleDims(const InferContext& context, const TensorType& logits) {
  WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", logits.dims.size()));
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

absl::Status InferSoftmaxCrossEntropy(InferContext& context, const TensorType& logits) {
  WEFT_ASSIGN_OR_RETURN(const Dims loss, PerExampleDims(context, logits));
  WEFT_RETURN_IF_ERROR(CheckLabel(context, logits, loss));
  context.SetOutput("Softmax", logits);
  context.SetOutput("Loss", {logits.dtype, loss});
  return absl::OkStatus();
}

absl::Status InferSoftmaxCrossEntropyGrad(InferContext& context, const TensorType& softmax) {
  WEFT_ASSIGN_OR_RETURN(const Dims loss, PerExampleDims(context, softmax));
  WEFT_RETURN_IF_ERROR(CheckLabel(context, softmax, loss));
  const TensorType* grad = context.Input("Loss@GRAD");
  if (grad != nullptr && !DimsFit(grad->dims, loss)) {
    return context.InputError("Loss@GRAD",
                              absl::StrCat("dimensions ", DimsToString(loss), " of the loss"));
  }
  context.SetOutput("Logits@GRAD", softmax);
  return absl::OkStatus();
}

// Paddle 3 has targets that are logarithms.
absl::Status CheckKlDivTarget(InferContext& context) {
  if (!context.attrs().Bool("log_target")) return absl::OkStatus();
  return context.AttrError("log_target", "false: targets that are probabilities", "true");
}

absl::Status InferKlDiv(InferContext& context, const TensorType& x) {
  if (x.dims.empty()) return context.InputError("X", "at least one dimension");
  const bool reduces = context.attrs().String("reduction") != "none";
  context.SetOutput("Loss", {x.dtype, reduces ? Dims() : x.dims});
  return absl::OkStatus();
}

// Y has one element for every row of X.
absl::Status InferCrossEntropy(InferContext& context, const TensorType& x) {
  if (x.dims.empty()) return context.InputError("X", "rows of classes");
  TensorType y = x;
  y.dims.back() = 1;
  const TensorType* label = context.Input("Label");
  const bool is_soft = context.attrs().Has("soft_label") && context.attrs().Bool("soft_label");
  if (label != nullptr) {
    const bool fits = is_soft ? label->dtype == x.dtype && DimsFit(label->dims, x.dims)
                              : DimFits(Product(label->dims), Product(y.dims));
    if (!fits) {
      return context.InputError(
          "Label",
          is_soft ? ToString(x) : absl::StrCat("a class for each row of ", DimsToString(x.dims)));
    }
  }
  context.SetOutput("Y", y);
  context.SetOutput("MatchX", y);
  context.SetOutput("XShape", ToXShape(x));
  return absl::OkStatus();
}

// X@GRAD has the dims that XShape keeps.
absl::Status InferCrossEntropyGrad2(InferContext& context) {
  const TensorType* xshape = context.Input("XShape");
  const TensorType* grad = context.Input("Y@GRAD");
  if (!context.HasInput("XShape")) return absl::InvalidArgumentError("input XShape: missing");
  if (xshape == nullptr || grad == nullptr) return absl::OkStatus();
  if (xshape->dims.size() < 2) return context.InputError("XShape", "the shape of X after a 0");
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

absl::Status InferNllLoss(InferContext& context, const TensorType& x) {
  if (x.dims.size() != 2 && x.dims.size() != 4) {
    return context.InputError("X", "two or four dimensions");
  }
  Dims rows = x.dims;
  rows.erase(rows.begin() + 1);
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Label", rows));
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Weight", {x.dims[1]}));
  const bool reduces = context.attrs().String("reduction") != "none";
  context.SetOutput("Out", {x.dtype, reduces ? Dims() : rows});
  context.SetOutput("Total_weight", {x.dtype, {}});
  return absl::OkStatus();
}

absl::Status InferLabelSmooth(InferContext& context, const TensorType& x) {
  if (x.dims.empty()) return context.InputError("X", "rows of classes");
  WEFT_RETURN_IF_ERROR(CheckElements(context, "PriorDist", x.dims.back()));
  context.SetOutput("Out", x);
  return absl::OkStatus();
}

}  // namespace

void AddLossSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("bce_loss", "Label, X -> Out")
                  .Infer(InOrder({SameType("X", "Label"), Like("X", {"Out"})}))
                  .Batch({batch::Elementwise})
                  .Pir("(input:X, label)"),
              {{"Label", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("hinge_loss", "Labels, Logits -> Loss")
                  .Infer(InOrder({SameType("Logits", "Labels"), Like("Logits", {"Loss"})}))
                  .Batch({batch::Elementwise}),
              {{"Labels", "Logits"}, {"Loss"}, {"Logits"}});
  AddWithGrad(schemas,
              OpSchema("log_loss", "Labels, Predicted -> Loss")
                  .Attr("epsilon", 1e-4f)
                  .Infer(InOrder({SameType("Predicted", "Labels"), Like("Predicted", {"Loss"})}))
                  .Batch({batch::Elementwise})
                  .Pir("(input:Predicted, label:Labels)"),
              {{"Labels", "Predicted"}, {"Loss"}, {"Predicted"}});
  AddWithGrad(schemas,
              OpSchema("rank_loss", "Label, Left, Right -> Out")
                  .Infer(InOrder({SameType("Label", "Left"), SameType("Label", "Right"),
                                  Like("Label", {"Out"})}))
                  .Batch({batch::Elementwise}),
              {{"Label", "Left", "Right"}, {"Out"}, {"Left", "Right"}});
  AddWithGrad(schemas,
              OpSchema("huber_loss", "X, Y -> Out, Residual~")
                  .RequiredAttr("delta", 1.0f)
                  .Infer(OutputsLike("X", {"Y"}))
                  .Batch({batch::Elementwise})
                  .Pir("(input:X, label:Y)"),
              {{"Residual"}, {"Out"}, {"X", "Y"}}, OutputsLike("Residual", {"Out@GRAD"}));
  AddWithGrad(
      schemas,
      OpSchema("kldiv_loss", "Target, X -> Loss")
          .Attr("log_target", false)
          .Attr("reduction", "mean", range::OneOf({"none", "sum", "mean", "batchmean"}))
          .Infer(InOrder({SameType("X", "Target"), CheckKlDivTarget, IfKnown("X", InferKlDiv)}))
          .Batch({batch::KlDiv})
          .Pir("(x, label:Target)"),
      {{"Target", "X"}, {"Loss"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("cross_entropy", "Label, X -> Y")
                  .Attr("ignore_index", -100)
                  .Attr("soft_label", false)
                  .Infer(IfKnown("X", InferCrossEntropy))
                  .Batch({batch::Rows({"X", "Label"})}),
              {{"Label", "X"}, {"Y"}, {"X"}});
  OpSchema cross_entropy2 = OpSchema("cross_entropy2", "Label, X -> MatchX~, XShape?~, Y")
                                .Attr("ignore_index", -100)
                                .Infer(IfKnown("X", InferCrossEntropy))
                                .Batch({batch::Rows({"X", "Label"})});
  schemas->Add(GradSchema(cross_entropy2, "cross_entropy_grad2",
                          {{"Label", "MatchX", "XShape"}, {"Y"}, {"X"}}, InferCrossEntropyGrad2)
                   .Algebra(Algebra::kBackward)  // its name does not end in _grad
                   .Batch(batch::Unrelated(batch::kNotNeeded)));
  schemas->Add(std::move(cross_entropy2));
  AddWithGrad(schemas,
              OpSchema("nll_loss", "Label, Weight?, X -> Out, Total_weight")
                  .Attr("ignore_index", int64_t{-100})
                  .Attr("reduction", "mean", range::OneOf({"none", "sum", "mean"}))
                  .Infer(IfKnown("X", InferNllLoss))
                  .Batch({batch::NllLoss})
                  .Pir("(input:X, label, weight)"),
              {{"Label", "Total_weight", "Weight", "X"}, {"Out"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("label_smooth", "PriorDist?, X -> Out")
                  .Attr("epsilon", 0.0f)
                  .Infer(IfKnown("X", InferLabelSmooth))
                  .Batch({batch::NotLast("X")})
                  .Pir("(label:X, prior_dist)"),
              {{}, {"Out"}, {"X"}}, OutputsLike("Out@GRAD"));
  AddWithGrad(schemas,
              OpSchema("softmax_with_cross_entropy", "Label, Logits -> Loss, Softmax")
                  .Attr("axis", -1)
                  .Attr("ignore_index", -100)
                  .Attr("numeric_stable_mode", true)
                  .Attr("soft_label", false)
                  .Attr("use_softmax", true)
                  .Since(kPaddle2, "gives ignored labels no gradient")
                  .Infer(IfKnown("Logits", InferSoftmaxCrossEntropy))
                  .Batch({batch::SoftmaxCrossEntropy})
                  .Pir("cross_entropy_with_softmax(input:Logits, label) -> softmax, loss"),
              {{"Label", "Softmax"}, {"Loss"}, {"Logits"}, /*optional=*/false},
              IfKnown("Softmax", InferSoftmaxCrossEntropyGrad));
  // With `normalize` the loss is divided by the number of labels that count: not elementwise.
  AddWithGrad(schemas,
              OpSchema("sigmoid_cross_entropy_with_logits", "Label, X, pos_weight? -> Out")
                  .Attr("ignore_index", -100)
                  .Attr("normalize", false)
                  .Infer(OutputsLike("X", {"Label", "pos_weight"}))
                  .Batch({batch::SigmoidCrossEntropy})
                  .Pir("(x, label, pos_weight)"),
              {{"Label", "X", "pos_weight"}, {"Out"}, {"X"}, /*optional=*/false},
              OutputsLike("X", {"Label", "pos_weight", "Out@GRAD"}));
}

}  // namespace weft
