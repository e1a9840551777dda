// Accuracy and area under the curve.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

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

// StatPos and StatNeg count samples by prediction, in num_thresholds + 1 counters. If slide_steps
// is not 0, such counters for each of the last steps stand before their sum, and the number of
// steps after it.
absl::Status InferAuc(InferContext& context) {
  const OpAttrs& attrs = context.attrs();
  const int64_t thresholds = attrs.Int("num_thresholds"), steps = attrs.Int("slide_steps");
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

void AddMetricsSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("accuracy", "Indices, Label, Out -> Accuracy~, Correct?~, Total?~")
                   .Infer(InferAccuracy)
                   .Batch({batch::Accuracy})
                   .Pir("(x:Out, indices, label)"));
  schemas->Add(
      OpSchema("auc",
               "InsTagWeight?, Label, Predict, StatNeg, StatPos -> AUC~, StatNegOut, StatPosOut")
          .Attr("curve", "ROC")
          .Attr("num_thresholds", 8191, range::AtLeast(1))
          .Attr("slide_steps", 1, range::AtLeast(0))
          .Infer(InferAuc)
          .Batch(batch::Unrelated(batch::kWholeResult))
          .Pir("(x:Predict, label, stat_pos, stat_neg, ins_tag_weight) -> auc, stat_pos_out, "
               "stat_neg_out"));
}

}  // namespace weft
