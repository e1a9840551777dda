#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(AmpTest, UnscaledGradientsKeepTheirTypesAndTheFindingIsOneBoolean) {
  EXPECT_THAT(Infer("check_finite_and_unscale(Scale: fp32[1], X: fp32[2] | fp32[3, 4]) -> Out*2, "
                    "FoundInfinite"),
              IsOkAndHolds("FoundInfinite: bool[1], Out: fp32[2] | fp32[3, 4]"));
}

TEST(AmpTest, LossScalingKeepsItsState) {
  EXPECT_THAT(
      Infer("update_loss_scaling(FoundInfinite: bool[1], InBadSteps: int32[1], InGoodSteps: "
            "int32[1], PrevLossScaling: fp32[1], X: fp32[2]) -> LossScaling, Out, OutBadSteps, "
            "OutGoodSteps",
            {{"decr_every_n_nan_or_inf", 1},
             {"decr_ratio", 0.5f},
             {"incr_every_n_steps", 1000},
             {"incr_ratio", 2.0f}}),
      IsOkAndHolds(
          "LossScaling: fp32[1], Out: fp32[2], OutBadSteps: int32[1], OutGoodSteps: int32[1]"));
}

TEST(AmpTest, LossScalingNeedsItsRatios) {
  EXPECT_THAT(
      Infer("update_loss_scaling(FoundInfinite: bool[1], InBadSteps: int32[1], InGoodSteps: "
            "int32[1], PrevLossScaling: fp32[1], X: fp32[2]) -> Out",
            {{"decr_every_n_nan_or_inf", 1}, {"decr_ratio", 0.5f}, {"incr_every_n_steps", 1000}}),
      IsInvalidArgument("attribute incr_ratio: expected FLOAT, found none"));
}

}  // namespace
}  // namespace weft::testing
