#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

InferenceCase Nce() {
  return InferenceCase("nce")
      .In("Input", {"fp32[-1, 8]"})
      .In("Weight", {"fp32[100, 8]"})
      .In("Label", {"int64[-1, 2]"})
      .Out("Cost")
      .Out("SampleLabels")
      .Out("SampleLogits")
      .Attr("num_total_classes", 100)
      .Attr("num_neg_samples", 5);
}

TEST(NceTest, SamplesAreTheLabelsAndTheNoise) {
  EXPECT_THAT(
      Nce().Infer(),
      IsOkAndHolds("Cost: fp32[-1, 1], SampleLabels: int64[-1, 7], SampleLogits: fp32[-1, 7]"));
}

TEST(NceTest, WeightsAreRowsOfAllClasses) {
  EXPECT_THAT(Nce().Attr("num_total_classes", 99).Infer(), IsInvalidArgument("99 rows"));
}

TEST(NceTest, ACustomSamplerNeedsItsDistribution) {
  EXPECT_THAT(Nce().Attr("sampler", 2).Infer(),
              IsInvalidArgument("input CustomDistAlias: missing"));
}

TEST(HierarchicalSigmoidTest, TheDefaultTreeHasANodeLessThanClasses) {
  const auto with_rows = [](const char* w) {
    return Infer(absl::StrCat("hierarchical_sigmoid(X: fp32[-1, 8], W: ", w,
                              ", Label: int64[-1, 1]) -> Out, PreOut"),
                 {{"num_classes", 6}});
  };
  EXPECT_THAT(with_rows("fp32[5, 8]"), IsOkAndHolds("Out: fp32[-1, 1]"));
  EXPECT_THAT(with_rows("fp32[6, 8]"), IsInvalidArgument("5 rows"));
}

}  // namespace
}  // namespace weft::testing
