#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::weft::testing::InferenceCase;
using ::weft::testing::IsOkAndHolds;
using ::weft::testing::StatusIs;

TEST(LayerNormTest, StatisticsAreOnePerNormalizedGroup) {
  EXPECT_THAT(
      InferenceCase("layer_norm")
          .In("Bias", {"fp32[64]"})
          .In("Scale", {"fp32[64]"})
          .In("X", {"fp32[-1, 16, 64]"})
          .Out("Mean")
          .Out("Variance")
          .Out("Y")
          .Attr("begin_norm_axis", 2)
          .Infer(),
      IsOkAndHolds(ElementsAre(Pair("Mean", "fp32[-1, 16]"), Pair("Variance", "fp32[-1, 16]"),
                               Pair("Y", "fp32[-1, 16, 64]"))));
}

TEST(LayerNormTest, StatisticsOfHalfPrecisionAreFp32) {
  EXPECT_THAT(InferenceCase("layer_norm").In("X", {"bf16[8, 64]"}).Out("Mean").Out("Y").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Mean", "fp32[8]"), Pair("Y", "bf16[8, 64]"))));
}

TEST(LayerNormTest, ScaleMustHaveOneElementForEachNormalizedOne) {
  EXPECT_THAT(InferenceCase("layer_norm")
                  .In("Scale", {"fp32[64]"})
                  .In("X", {"fp32[8, 16, 64]"})
                  .Out("Y")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (layer_norm) input Scale (Scale_0): expected dimensions "
                                 "[1024], found fp32[64]")));
}

TEST(LayerNormTest, AxisMustLeaveRowsAndColumns) {
  EXPECT_THAT(
      InferenceCase("layer_norm")
          .In("X", {"fp32[8, 64]"})
          .Out("Y")
          .Attr("begin_norm_axis", 2)
          .Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr("attribute begin_norm_axis: expected 1 or more, and less than 2, found 2")));
}

TEST(BatchNormTest, StatisticsAreOnePerChannel) {
  EXPECT_THAT(
      InferenceCase("batch_norm")
          .In("Bias", {"fp32[8]"})
          .In("Mean", {"fp32[8]"})
          .In("Scale", {"fp32[8]"})
          .In("Variance", {"fp32[8]"})
          .In("X", {"fp32[-1, 8, 32, 32]"})
          .Out("MeanOut")
          .Out("ReserveSpace")
          .Out("SavedMean")
          .Out("SavedVariance")
          .Out("VarianceOut")
          .Out("Y")
          .Infer(),
      IsOkAndHolds(ElementsAre(Pair("MeanOut", "fp32[8]"), Pair("ReserveSpace", "fp32[0]"),
                               Pair("SavedMean", "fp32[8]"), Pair("SavedVariance", "fp32[8]"),
                               Pair("VarianceOut", "fp32[8]"), Pair("Y", "fp32[-1, 8, 32, 32]"))));
  EXPECT_THAT(
      InferenceCase("batch_norm")
          .In("Bias", {"fp32[8]"})
          .In("Mean", {"fp32[8]"})
          .In("Scale", {"fp32[8]"})
          .In("Variance", {"fp32[8]"})
          .In("X", {"fp32[-1, 32, 32, 8]"})
          .Out("MeanOut")
          .Out("ReserveSpace")
          .Out("SavedMean")
          .Out("SavedVariance")
          .Out("VarianceOut")
          .Out("Y")
          .Attr("data_layout", std::string("NHWC"))
          .Infer(),
      IsOkAndHolds(ElementsAre(Pair("MeanOut", "fp32[8]"), Pair("ReserveSpace", "fp32[0]"),
                               Pair("SavedMean", "fp32[8]"), Pair("SavedVariance", "fp32[8]"),
                               Pair("VarianceOut", "fp32[8]"), Pair("Y", "fp32[-1, 32, 32, 8]"))));
}

TEST(BatchNormTest, ParametersOfAnotherSizeAreAnError) {
  EXPECT_THAT(
      InferenceCase("batch_norm")
          .In("Bias", {"fp32[9]"})
          .In("Mean", {"fp32[9]"})
          .In("Scale", {"fp32[9]"})
          .In("Variance", {"fp32[9]"})
          .In("X", {"fp32[-1, 8, 32, 32]"})
          .Out("MeanOut")
          .Out("ReserveSpace")
          .Out("SavedMean")
          .Out("SavedVariance")
          .Out("VarianceOut")
          .Out("Y")
          .Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr(
              "op 0 (batch_norm) input Scale (Scale_0): expected dimensions [8], found fp32[9]")));
}

TEST(BatchNormTest, VectorIsAnError) {
  EXPECT_THAT(InferenceCase("batch_norm")
                  .In("Bias", {"fp32[8]"})
                  .In("Mean", {"fp32[8]"})
                  .In("Scale", {"fp32[8]"})
                  .In("Variance", {"fp32[8]"})
                  .In("X", {"fp32[8]"})
                  .Out("MeanOut")
                  .Out("ReserveSpace")
                  .Out("SavedMean")
                  .Out("SavedVariance")
                  .Out("VarianceOut")
                  .Out("Y")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input X (X_0): expected rows and channels, found fp32[8]")));
}

// With running statistics, Paddle leaves out those of the batch and adds Mean and Variance.
TEST(BatchNormTest, GradientReadsTheStatisticsThatWereUsed) {
  EXPECT_THAT(InferenceCase("batch_norm_grad")
                  .In("Mean", {"fp32[8]"})
                  .In("Scale", {"fp32[8]"})
                  .In("Variance", {"fp32[8]"})
                  .In("X", {"fp32[-1, 8, 4, 4]"})
                  .In("Y@GRAD", {"fp32[-1, 8, 4, 4]"})
                  .Out("Scale@GRAD")
                  .Out("X@GRAD")
                  .Attr("use_global_stats", true)
                  .Infer(),
              IsOkAndHolds(
                  ElementsAre(Pair("Scale@GRAD", "fp32[8]"), Pair("X@GRAD", "fp32[-1, 8, 4, 4]"))));
}

TEST(GroupNormTest, StatisticsAreOnePerImageAndGroup) {
  EXPECT_THAT(InferenceCase("group_norm")
                  .In("Scale", {"fp32[6]"})
                  .In("X", {"fp16[-1, 4, 4, 6]"})
                  .Out("Mean")
                  .Out("Variance")
                  .Out("Y")
                  .Attr("groups", 3)
                  .Attr("data_layout", std::string("NHWC"))
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Mean", "fp32[-1, 3]"), Pair("Variance", "fp32[-1, 3]"),
                                       Pair("Y", "fp16[-1, 4, 4, 6]"))));
}

TEST(GroupNormTest, GroupsMustShareTheChannels) {
  EXPECT_THAT(
      InferenceCase("group_norm").In("X", {"fp32[2, 6, 3, 3]"}).Out("Y").Attr("groups", 4).Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("input X (X_0): expected channels a multiple of 4 groups")));
  EXPECT_THAT(
      InferenceCase("group_norm").In("X", {"fp32[2, 6, 3, 3]"}).Out("Y").Attr("groups", 0).Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("attribute groups: expected 1 or more, found 0")));
}

TEST(InstanceNormTest, StatisticsAreOnePerImageAndChannel) {
  EXPECT_THAT(
      InferenceCase("instance_norm")
          .In("X", {"fp32[2, 3, 4, 4]"})
          .Out("SavedMean")
          .Out("SavedVariance")
          .Out("Y")
          .Infer(),
      IsOkAndHolds(ElementsAre(Pair("SavedMean", "fp32[6]"), Pair("SavedVariance", "fp32[6]"),
                               Pair("Y", "fp32[2, 3, 4, 4]"))));
}

// The gradient op does not read Bias.
TEST(InstanceNormTest, GradientOfTheBiasIsLikeTheScale) {
  EXPECT_THAT(
      InferenceCase("instance_norm_grad")
          .In("SavedMean", {"fp32[6]"})
          .In("SavedVariance", {"fp32[6]"})
          .In("Scale", {"fp32[3]"})
          .In("X", {"fp32[2, 3, 4, 4]"})
          .In("Y@GRAD", {"fp32[2, 3, 4, 4]"})
          .Out("Bias@GRAD")
          .Out("Scale@GRAD")
          .Infer(),
      IsOkAndHolds(ElementsAre(Pair("Bias@GRAD", "fp32[3]"), Pair("Scale@GRAD", "fp32[3]"))));
}

}  // namespace
}  // namespace weft
