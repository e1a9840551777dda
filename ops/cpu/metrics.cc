// Metrics of a model: accuracy and AUC.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "ops/area_under_curve.h"
#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The share of samples whose label is among the k values of Indices.
absl::StatusOr<Kernel> Accuracy(OpKernel op) {
  op.Ignore({"Out"});
  const In indices = op.in("Indices"), label = op.in("Label");
  const Out accuracy = op.out("Accuracy"), correct = op.out("Correct"), total = op.out("Total");
  return op.Supports(ElementTypesOf<int64_t>()).Make([=](const KernelContext& ctx) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckDType("Indices", indices(ctx), DType::kInt64));
    WEFT_RETURN_IF_ERROR(CheckDType("Label", label(ctx), DType::kInt64));
    const int64_t samples = indices(ctx).dim(0);
    const int64_t k = NumElements(absl::MakeConstSpan(indices(ctx).dims()).subspan(1));
    WEFT_RETURN_IF_ERROR(CheckSize("Label", label(ctx), samples));
    const int64_t *found = indices.data<int64_t>(ctx), *labels = label.data<int64_t>(ctx);
    int32_t count = 0;
    for (int64_t i = 0; i < samples; ++i) {
      const int64_t* row = found + i * k;
      count += std::find(row, row + k, labels[i]) != row + k;
    }
    *accuracy.data<float>(ctx) = samples == 0 ? 0 : static_cast<float>(count) / samples;
    if (Tensor* tensor = correct.get(ctx)) *tensor->data<int32_t>() = count;
    if (Tensor* tensor = total.get(ctx)) *tensor->data<int32_t>() = static_cast<int32_t>(samples);
    return absl::OkStatus();
  });
}

// StatPosOut and StatNegOut = StatPos and StatNeg plus the samples counted by the last column of
// Predict; AUC of all samples, or of those of the last slide_steps steps.
absl::StatusOr<Kernel> Auc(OpKernel op) {
  if (op.attrs().String("curve") != "ROC") {
    return absl::UnimplementedError(
        absl::StrCat("attribute curve: no kernel for ", op.attrs().String("curve")));
  }
  const In predict = op.in("Predict"), label = op.in("Label");
  const In stat_pos = op.in("StatPos"), stat_neg = op.in("StatNeg");
  const In tag_weight = op.in("InsTagWeight");
  const Out auc = op.out("AUC"), pos_out = op.out("StatPosOut"), neg_out = op.out("StatNegOut");
  const int64_t thresholds = op.attrs().Int("num_thresholds");
  const int64_t steps = op.attrs().Int("slide_steps"), buckets = thresholds + 1;
  op.InPlace(pos_out, stat_pos).InPlace(neg_out, stat_neg);
  return op.Make(Floats(predict), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_RETURN_IF_ERROR(CheckDType("Label", label(ctx), DType::kInt64));
    int64_t *positives = pos_out.data<int64_t>(ctx), *negatives = neg_out.data<int64_t>(ctx);
    const int64_t *old_positives = stat_pos.data<int64_t>(ctx),
                  *old_negatives = stat_neg.data<int64_t>(ctx);
    const int64_t counters = stat_pos(ctx).size(),
                  step = steps == 0 ? 0 : old_positives[counters - 1];
    const int64_t samples = predict(ctx).dim(0), width = predict(ctx).dim(1);
    const T* predictions = predict.data<T>(ctx);
    const Tensor* const weights = tag_weight.get(ctx);
    if (weights != nullptr && (weights->size() == 0 || *weights->data<T>() == T(0))) {
      return absl::InvalidArgumentError(
          "input InsTagWeight: expected a first weight that is not 0, by which a batch counts");
    }
    for (int64_t i = 0; i < samples; ++i) {
      const T p = predictions[i * width + width - 1];
      if (!(p >= 0 && p <= 1)) {
        return absl::InvalidArgumentError(
            absl::StrCat("input Predict: ", p, " of sample ", i, " is not in [0, 1]"));
      }
    }
    if (step < 0) return absl::InvalidArgumentError("input StatPos: a negative number of steps");
    // Of this step, and of all steps in the window.
    const int64_t current = steps == 0 ? 0 : step % steps * buckets, sum = steps * buckets;
    for (auto [from, to] : {std::pair(old_positives, positives), {old_negatives, negatives}}) {
      if (from != to) std::copy_n(from, counters, to);
      if (steps == 0) continue;
      for (int64_t b = 0; b < buckets; ++b) {  // the values that this step replaces
        to[sum + b] -= to[current + b];
        to[current + b] = 0;
      }
      ++to[counters - 1];
    }
    for (int64_t i = 0; i < samples; ++i) {
      int64_t* to = label.data<int64_t>(ctx)[i] != 0 ? positives : negatives;
      const T scaled = predictions[i * width + width - 1] * static_cast<T>(thresholds);
      const int64_t bucket = std::min(static_cast<int64_t>(scaled), thresholds);
      ++to[current + bucket];
      if (steps > 0) ++to[sum + bucket];
    }
    *auc.data<double>(ctx) = AreaUnderCurve(positives + sum, negatives + sum, buckets);
    return absl::OkStatus();
  });
}

}  // namespace

void AddMetricKernels(KernelTable* table) {
  table->Add("accuracy", Accuracy);
  table->Add("auc", Auc);
}

}  // namespace weft
