// Accuracy and area under the curve.
#include "absl/strings/str_cat.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional, kLooseType = OpSchema::kLooseType;

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

void AddMetricsSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("accuracy")
                   .In("Indices")
                   .In("Label")
                   .In("Out")
                   .Out("Accuracy", kLooseType)
                   .Out("Correct", kOptional | kLooseType)
                   .Out("Total", kOptional | kLooseType)
                   .Infer(InferAccuracy));
  schemas->Add(OpSchema("auc")
                   .In("InsTagWeight", kOptional)
                   .In("Label")
                   .In("Predict")
                   .In("StatNeg")
                   .In("StatPos")
                   .Out("AUC", kLooseType)
                   .Out("StatNegOut")
                   .Out("StatPosOut")
                   .Attr("curve", "ROC")
                   .Attr("num_thresholds", 8191)
                   .Attr("slide_steps", 1)
                   .Infer(InferAuc));
}

}  // namespace weft
