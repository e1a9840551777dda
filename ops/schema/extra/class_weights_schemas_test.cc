#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

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
  EXPECT_THAT(Nce().Infer(), IsOkAndHolds(ElementsAre(Pair("Cost", "fp32[-1, 1]"),
                                                      Pair("SampleLabels", "int64[-1, 7]"),
                                                      Pair("SampleLogits", "fp32[-1, 7]"))));
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
    return InferenceCase("hierarchical_sigmoid")
        .In("X", {"fp32[-1, 8]"})
        .In("W", {w})
        .In("Label", {"int64[-1, 1]"})
        .Out("Out")
        .Out("PreOut")
        .Attr("num_classes", 6)
        .Infer();
  };
  EXPECT_THAT(with_rows("fp32[5, 8]"), IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 1]"))));
  EXPECT_THAT(with_rows("fp32[6, 8]"), IsInvalidArgument("5 rows"));
}

}  // namespace
}  // namespace weft::testing
