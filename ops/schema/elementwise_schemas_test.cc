#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(ElementwiseTest, EqualShapesGiveThatShape) {
  EXPECT_THAT(Infer("elementwise_add(X: fp32[2, 3], Y: fp32[2, 3]) -> Out"),
              IsOkAndHolds("Out: fp32[2, 3]"));
}

TEST(ElementwiseTest, SmallerOperandIsAlignedAtTheRight) {
  EXPECT_THAT(Infer("elementwise_add(X: fp32[2, 3, 4], Y: fp32[4]) -> Out"),
              IsOkAndHolds("Out: fp32[2, 3, 4]"));
  EXPECT_THAT(Infer("elementwise_add(X: fp32[4], Y: fp32[2, 3, 4]) -> Out"),
              IsOkAndHolds("Out: fp32[2, 3, 4]"));
}

TEST(ElementwiseTest, AxisAlignsTheSmallerOperand) {
  EXPECT_THAT(Infer("elementwise_add(X: fp32[2, 3, 4], Y: fp32[3]) -> Out", {{"axis", 1}}),
              IsOkAndHolds("Out: fp32[2, 3, 4]"));
  EXPECT_THAT(Infer("elementwise_add(X: fp32[2, 3, 4], Y: fp32[3]) -> Out", {{"axis", 0}}),
              IsInvalidArgument("op 0 (elementwise_add) input Y (Y_0): expected dimensions that "
                                "broadcast with [2, 3, 4] of X at axis 0, found fp32[3]"));
}

TEST(ElementwiseTest, AxisBeyondTheRightIsAnError) {
  EXPECT_THAT(Infer("elementwise_add(X: fp32[2, 3], Y: fp32[3]) -> Out", {{"axis", 2}}),
              IsInvalidArgument("at axis 2"));
  EXPECT_THAT(Infer("elementwise_add(X: fp32[2, 3], Y: fp32[3]) -> Out", {{"axis", -9}}),
              IsInvalidArgument("at axis -9"));
}

TEST(ElementwiseTest, DimensionsOfSizeOneAreRepeated) {
  EXPECT_THAT(Infer("elementwise_add(X: fp32[2, 1, 4], Y: fp32[3, 1]) -> Out"),
              IsOkAndHolds("Out: fp32[2, 3, 4]"));
}

TEST(ElementwiseTest, KnownDimensionWinsOverUnknownOne) {
  EXPECT_THAT(Infer("elementwise_add(X: fp32[-1, 3], Y: fp32[8, 3]) -> Out"),
              IsOkAndHolds("Out: fp32[8, 3]"));
  EXPECT_THAT(Infer("elementwise_add(X: fp32[-1, 3], Y: fp32[1, 3]) -> Out"),
              IsOkAndHolds("Out: fp32[-1, 3]"));
}

TEST(ElementwiseTest, ScalarsGiveAScalar) {
  EXPECT_THAT(Infer("elementwise_add(X: fp32[], Y: fp32[]) -> Out"), IsOkAndHolds("Out: fp32[]"));
  EXPECT_THAT(Infer("elementwise_add(X: fp32[], Y: fp32[1]) -> Out"), IsOkAndHolds("Out: fp32[1]"));
}

TEST(ElementwiseTest, ShapesThatDoNotFitAreAnError) {
  EXPECT_THAT(
      Infer("elementwise_add(X: fp32[2, 3], Y: fp32[2, 4]) -> Out"),
      IsInvalidArgument("input Y (Y_0): expected dimensions that broadcast with [2, 3] of X"));
}

TEST(ElementwiseTest, ElementTypesMustAgree) {
  EXPECT_THAT(Infer("elementwise_add(X: fp32[2], Y: fp16[2]) -> Out"),
              IsInvalidArgument("input Y (Y_0): expected fp32 as X is, found fp16[2]"));
}

TEST(ElementwiseTest, ComparisonGivesBooleans) {
  EXPECT_THAT(Infer("less_than(X: int64[2, 3], Y: int64[1]) -> Out"),
              IsOkAndHolds("Out: bool[2, 3]"));
  EXPECT_THAT(Infer("logical_and(X: bool[1], Y: bool[1]) -> Out"), IsOkAndHolds("Out: bool[1]"));
  EXPECT_THAT(Infer("logical_not(X: bool[1]) -> Out"), IsOkAndHolds("Out: bool[1]"));
}

TEST(ElementwiseTest, GradientsHaveTheTypesOfTheOperands) {
  EXPECT_THAT(Infer("elementwise_mul_grad(Out@GRAD: fp32[-1, 3], X: fp32[-1, 3], Y: fp32[3]) -> "
                    "X@GRAD, Y@GRAD"),
              IsOkAndHolds("X@GRAD: fp32[-1, 3], Y@GRAD: fp32[3]"));
}

TEST(ElementwiseTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(
      Infer("elementwise_div_grad(Out: fp32[2, 3], Out@GRAD: fp32[2, 4], X: fp32[2, 3], Y: "
            "fp32[3]) -> X@GRAD"),
      IsInvalidArgument(
          "input Out@GRAD (Out@GRAD_0): expected dimensions [2, 3] of X with Y, found fp32[2, 4]"));
}

TEST(ElementwiseGradTest, TheResultThatIsReadHasItsDimensions) {
  EXPECT_THAT(Infer("elementwise_div_grad(Out@GRAD: fp32[2, 3], Out: fp32[2], X: fp32[2, 3], Y: "
                    "fp32[3]) -> X@GRAD"),
              IsInvalidArgument("input Out (Out_0): expected dimensions [2, 3] of X with Y"));
}

TEST(Atan2Test, GradientsHaveTheTypesOfTheOperands) {
  EXPECT_THAT(Infer("atan2(X1: fp64[-1, 3], X2: fp64[2, 3]) -> Out"),
              IsOkAndHolds("Out: fp64[-1, 3]"));
  EXPECT_THAT(
      Infer(
          "atan2_grad(Out@GRAD: fp64[2, 3], X1: fp64[-1, 3], X2: fp64[2, 3]) -> X1@GRAD, X2@GRAD"),
      IsOkAndHolds("X1@GRAD: fp64[-1, 3], X2@GRAD: fp64[2, 3]"));
}

TEST(Atan2Test, GradientOfAnotherTypeIsAnError) {
  for (const char* type : {"fp32[3, 2]", "fp64[2, 3]"}) {
    EXPECT_THAT(Infer(absl::StrCat("atan2_grad(Out@GRAD: ", type,
                                   ", X1: fp32[2, 3], X2: fp32[2, 3]) -> X1@GRAD")),
                IsInvalidArgument("input Out@GRAD (Out@GRAD_0): expected fp32[2, 3], found "));
  }
}

}  // namespace
}  // namespace weft::testing
