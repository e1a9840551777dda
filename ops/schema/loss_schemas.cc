// Losses that have ops of their own.
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

}  // namespace

void AddLossSchemas(OpSchemaTable* schemas) {
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
  schemas->Add(OpSchema("sigmoid_cross_entropy_with_logits")
                   .In("Label")
                   .In("X")
                   .In("pos_weight", OpSchema::kOptional)
                   .Out("Out")
                   .Attr("ignore_index", -100)
                   .Attr("normalize", false)
                   .Infer(InOrder({SameType("X", "Label"), OutputsLike("X")})));
  schemas->Add(
      OpSchema("sigmoid_cross_entropy_with_logits_grad")
          .In("Label")
          .In("Out@GRAD")
          .In("X")
          .In("pos_weight", OpSchema::kOptional)
          .Out("X@GRAD")
          .Attr("ignore_index", -100)
          .Attr("normalize", false)
          .Infer(InOrder({SameType("X", "Label"), SameType("X", "Out@GRAD"), GradsLikeInputs()})));
}

}  // namespace weft
