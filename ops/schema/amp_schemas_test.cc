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

TEST(AmpTest, UnscaledGradientsKeepTheirTypesAndTheFindingIsOneBoolean) {
  EXPECT_THAT(InferenceCase("check_finite_and_unscale")
                  .In("Scale", {"fp32[1]"})
                  .In("X", {"fp32[2]", "fp32[3, 4]"})
                  .Out("Out", 2)
                  .Out("FoundInfinite")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("FoundInfinite", "bool[1]"),
                                       Pair("Out", "fp32[2] | fp32[3, 4]"))));
}

TEST(AmpTest, LossScalingKeepsItsState) {
  EXPECT_THAT(
      InferenceCase("update_loss_scaling")
          .In("FoundInfinite", {"bool[1]"})
          .In("InBadSteps", {"int32[1]"})
          .In("InGoodSteps", {"int32[1]"})
          .In("PrevLossScaling", {"fp32[1]"})
          .In("X", {"fp32[2]"})
          .Out("LossScaling")
          .Out("Out")
          .Out("OutBadSteps")
          .Out("OutGoodSteps")
          .Attr("decr_every_n_nan_or_inf", 1)
          .Attr("decr_ratio", 0.5f)
          .Attr("incr_every_n_steps", 1000)
          .Attr("incr_ratio", 2.0f)
          .Infer(),
      IsOkAndHolds(ElementsAre(Pair("LossScaling", "fp32[1]"), Pair("Out", "fp32[2]"),
                               Pair("OutBadSteps", "int32[1]"), Pair("OutGoodSteps", "int32[1]"))));
}

TEST(AmpTest, LossScalingNeedsItsRatios) {
  EXPECT_THAT(InferenceCase("update_loss_scaling")
                  .In("FoundInfinite", {"bool[1]"})
                  .In("InBadSteps", {"int32[1]"})
                  .In("InGoodSteps", {"int32[1]"})
                  .In("PrevLossScaling", {"fp32[1]"})
                  .In("X", {"fp32[2]"})
                  .Out("Out")
                  .Attr("decr_every_n_nan_or_inf", 1)
                  .Attr("decr_ratio", 0.5f)
                  .Attr("incr_every_n_steps", 1000)
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute incr_ratio: expected FLOAT, found none")));
}

}  // namespace
}  // namespace weft
