#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(LayerNormTest, StatisticsAreOnePerNormalizedGroup) {
  EXPECT_THAT(
      Infer("layer_norm(Bias: fp32[64], Scale: fp32[64], X: fp32[-1, 16, 64]) -> Mean, Variance, Y",
            {{"begin_norm_axis", 2}}),
      IsOkAndHolds("Mean: fp32[-1, 16], Variance: fp32[-1, 16], Y: fp32[-1, 16, 64]"));
}

TEST(LayerNormTest, StatisticsOfHalfPrecisionAreFp32) {
  EXPECT_THAT(Infer("layer_norm(X: bf16[8, 64]) -> Mean, Y"),
              IsOkAndHolds("Mean: fp32[8], Y: bf16[8, 64]"));
}

TEST(LayerNormTest, ScaleMustHaveOneElementForEachNormalizedOne) {
  EXPECT_THAT(
      Infer("layer_norm(Scale: fp32[64], X: fp32[8, 16, 64]) -> Y"),
      IsInvalidArgument(
          "op 0 (layer_norm) input Scale (Scale_0): expected dimensions [1024], found fp32[64]"));
}

TEST(LayerNormTest, AxisMustLeaveRowsAndColumns) {
  EXPECT_THAT(
      Infer("layer_norm(X: fp32[8, 64]) -> Y", {{"begin_norm_axis", 2}}),
      IsInvalidArgument("attribute begin_norm_axis: expected 1 or more, and less than 2, found 2"));
}

TEST(BatchNormTest, StatisticsAreOnePerChannel) {
  EXPECT_THAT(
      Infer(
          "batch_norm(Bias: fp32[8], Mean: fp32[8], Scale: fp32[8], Variance: fp32[8], X: fp32[-1, "
          "8, 32, 32]) -> MeanOut, ReserveSpace, SavedMean, SavedVariance, VarianceOut, Y"),
      IsOkAndHolds("MeanOut: fp32[8], ReserveSpace: fp32[0], SavedMean: fp32[8], SavedVariance: "
                   "fp32[8], VarianceOut: fp32[8], Y: fp32[-1, 8, 32, 32]"));
  EXPECT_THAT(
      Infer(
          "batch_norm(Bias: fp32[8], Mean: fp32[8], Scale: fp32[8], Variance: fp32[8], X: fp32[-1, "
          "32, 32, 8]) -> MeanOut, ReserveSpace, SavedMean, SavedVariance, VarianceOut, Y",
          {{"data_layout", std::string("NHWC")}}),
      IsOkAndHolds("MeanOut: fp32[8], ReserveSpace: fp32[0], SavedMean: fp32[8], SavedVariance: "
                   "fp32[8], VarianceOut: fp32[8], Y: fp32[-1, 32, 32, 8]"));
}

TEST(BatchNormTest, ParametersOfAnotherSizeAreAnError) {
  EXPECT_THAT(
      Infer(
          "batch_norm(Bias: fp32[9], Mean: fp32[9], Scale: fp32[9], Variance: fp32[9], X: fp32[-1, "
          "8, 32, 32]) -> MeanOut, ReserveSpace, SavedMean, SavedVariance, VarianceOut, Y"),
      IsInvalidArgument(
          "op 0 (batch_norm) input Scale (Scale_0): expected dimensions [8], found fp32[9]"));
}

TEST(BatchNormTest, VectorIsAnError) {
  EXPECT_THAT(
      Infer("batch_norm(Bias: fp32[8], Mean: fp32[8], Scale: fp32[8], Variance: fp32[8], X: "
            "fp32[8]) -> MeanOut, ReserveSpace, SavedMean, SavedVariance, VarianceOut, Y"),
      IsInvalidArgument("input X (X_0): expected rows and channels, found fp32[8]"));
}

// With running statistics, Paddle leaves out those of the batch and adds Mean and Variance.
TEST(BatchNormTest, GradientReadsTheStatisticsThatWereUsed) {
  EXPECT_THAT(Infer("batch_norm_grad(Mean: fp32[8], Scale: fp32[8], Variance: fp32[8], X: fp32[-1, "
                    "8, 4, 4], Y@GRAD: fp32[-1, 8, 4, 4]) -> Scale@GRAD, X@GRAD",
                    {{"use_global_stats", true}}),
              IsOkAndHolds("Scale@GRAD: fp32[8], X@GRAD: fp32[-1, 8, 4, 4]"));
}

TEST(GroupNormTest, StatisticsAreOnePerImageAndGroup) {
  EXPECT_THAT(Infer("group_norm(Scale: fp32[6], X: fp16[-1, 4, 4, 6]) -> Mean, Variance, Y",
                    {{"groups", 3}, {"data_layout", std::string("NHWC")}}),
              IsOkAndHolds("Mean: fp32[-1, 3], Variance: fp32[-1, 3], Y: fp16[-1, 4, 4, 6]"));
}

TEST(GroupNormTest, GroupsMustShareTheChannels) {
  EXPECT_THAT(Infer("group_norm(X: fp32[2, 6, 3, 3]) -> Y", {{"groups", 4}}),
              IsInvalidArgument("input X (X_0): expected channels a multiple of 4 groups"));
  EXPECT_THAT(Infer("group_norm(X: fp32[2, 6, 3, 3]) -> Y", {{"groups", 0}}),
              IsInvalidArgument("attribute groups: expected 1 or more, found 0"));
}

TEST(InstanceNormTest, StatisticsAreOnePerImageAndChannel) {
  EXPECT_THAT(Infer("instance_norm(X: fp32[2, 3, 4, 4]) -> SavedMean, SavedVariance, Y"),
              IsOkAndHolds("SavedMean: fp32[6], SavedVariance: fp32[6], Y: fp32[2, 3, 4, 4]"));
}

// The gradient op does not read Bias.
TEST(InstanceNormTest, GradientOfTheBiasIsLikeTheScale) {
  EXPECT_THAT(
      Infer("instance_norm_grad(SavedMean: fp32[6], SavedVariance: fp32[6], Scale: fp32[3], X: "
            "fp32[2, 3, 4, 4], Y@GRAD: fp32[2, 3, 4, 4]) -> Bias@GRAD, Scale@GRAD"),
      IsOkAndHolds("Bias@GRAD: fp32[3], Scale@GRAD: fp32[3]"));
}

}  // namespace
}  // namespace weft::testing
