#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(ConcatTest, AddsUpTheSizesAlongTheAxis) {
  EXPECT_THAT(Infer("concat(X: fp32[-1, 8] | fp32[-1, 13]) -> Out", {{"axis", 1}}),
              IsOkAndHolds("Out: fp32[-1, 21]"));
  EXPECT_THAT(Infer("concat(X: fp32[-1, 8] | fp32[4, 8]) -> Out"),
              IsOkAndHolds("Out: fp32[-1, 8]"));
}

TEST(ConcatTest, KnownDimensionWinsOverUnknownOne) {
  EXPECT_THAT(Infer("concat(X: fp32[-1, 8] | fp32[4, 8]) -> Out", {{"axis", 1}}),
              IsOkAndHolds("Out: fp32[4, 16]"));
}

TEST(ConcatTest, OtherDimensionsMustAgree) {
  EXPECT_THAT(Infer("concat(X: fp32[2, 8] | fp32[3, 8]) -> Out", {{"axis", 1}}),
              IsInvalidArgument("op 0 (concat) input X (X_1): expected fp32[2, 8] but for "
                                "dimension 1, found fp32[3, 8]"));
  EXPECT_THAT(Infer("concat(X: fp32[2, 8] | fp32[16]) -> Out", {{"axis", 1}}),
              IsInvalidArgument("found fp32[16]"));
}

TEST(ConcatTest, GradientsAreLikeTheInputs) {
  EXPECT_THAT(Infer("concat_grad(Out@GRAD: fp32[5], X: fp32[2] | fp32[3]) -> X@GRAD*2"),
              IsOkAndHolds("X@GRAD: fp32[2] | fp32[3]"));
}

TEST(ConcatTest, GradientOfAnotherSizeIsAnError) {
  EXPECT_THAT(
      Infer("concat_grad(Out@GRAD: fp32[6], X: fp32[2] | fp32[3]) -> X@GRAD*2"),
      IsInvalidArgument("input Out@GRAD (Out@GRAD_0): expected fp32[5] as Out, found fp32[6]"));
}

TEST(SplitTest, IntoEqualParts) {
  EXPECT_THAT(Infer("split(X: fp32[4, 3]) -> Out*2", {{"num", 2}}),
              IsOkAndHolds("Out: fp32[2, 3] | fp32[2, 3]"));
  EXPECT_THAT(Infer("split(X: fp32[-1, 3]) -> Out*2", {{"num", 2}}),
              IsOkAndHolds("Out: fp32[-1, 3] | fp32[-1, 3]"));
}

TEST(SplitTest, IntoSectionsOfWhichOneTakesTheRest) {
  EXPECT_THAT(Infer("split(X: fp32[4, 9]) -> Out*3", {{"axis", 1}, {"sections", Ints{2, -1, 3}}}),
              IsOkAndHolds("Out: fp32[4, 2] | fp32[4, 4] | fp32[4, 3]"));
}

TEST(SplitTest, PartsMustBeWhole) {
  EXPECT_THAT(
      Infer("split(X: fp32[5]) -> Out*2", {{"num", 2}}),
      IsInvalidArgument(
          "op 0 (split) input X (X_0): expected 2 equal parts along the axis, found fp32[5]"));
  EXPECT_THAT(Infer("split(X: fp32[5]) -> Out*2", {{"sections", Ints{2, 2}}}),
              IsInvalidArgument("attribute sections: expected parts of 5 elements, found [2, 2]"));
  EXPECT_THAT(Infer("split(X: fp32[5]) -> Out*2", {{"sections", Ints{-1, -1}}}),
              IsInvalidArgument("found [-1, -1]"));
}

TEST(SplitTest, NumberOfPartsMustMatchOutputs) {
  EXPECT_THAT(
      Infer("split(X: fp32[6]) -> Out*2", {{"num", 3}}),
      IsInvalidArgument("attribute num: expected 2 parts, as many as Out has variables, found 3"));
  EXPECT_THAT(Infer("split(X: fp32[6]) -> Out*3", {{"sections", Ints{2, 4}}}),
              IsInvalidArgument("attribute sections: expected 3 parts"));
}

}  // namespace
}  // namespace weft::testing
