#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(ReshapeTest, ZeroCopiesADimension) {
  EXPECT_THAT(
      Infer("reshape2(X: fp32[-1, 128, 768]) -> Out, XShape", {{"shape", Ints{0, 0, 12, 64}}}),
      IsOkAndHolds("Out: fp32[-1, 128, 12, 64], XShape: fp32[0, -1, 128, 768]"));
}

TEST(ReshapeTest, MinusOneIsTheRemainder) {
  EXPECT_THAT(Infer("reshape2(X: fp32[2, 3, 4]) -> Out, XShape", {{"shape", Ints{-1, 6}}}),
              IsOkAndHolds("Out: fp32[4, 6], XShape: fp32[0, 2, 3, 4]"));
  EXPECT_THAT(Infer("reshape2(X: fp32[-1, 4]) -> Out, XShape", {{"shape", Ints{-1, 8}}}),
              IsOkAndHolds("Out: fp32[-1, 8], XShape: fp32[0, -1, 4]"));
}

TEST(ReshapeTest, EmptyShapeIsAScalar) {
  EXPECT_THAT(Infer("reshape2(X: fp32[1, 1]) -> Out, XShape", {{"shape", Ints{}}}),
              IsOkAndHolds("Out: fp32[], XShape: fp32[0, 1, 1]"));
}

TEST(ReshapeTest, ShapeThatIsComputedIsUnknown) {
  EXPECT_THAT(Infer("reshape2(Shape: int32[2], X: fp32[6]) -> Out"), IsOkAndHolds(""));
}

TEST(SqueezeTest, NamedDimensionThatIsUnknownMayBeOne) {
  EXPECT_THAT(Infer("squeeze2(X: fp32[-1, -1, 8]) -> Out, XShape", {{"axes", Ints{1}}}),
              IsOkAndHolds("XShape: fp32[0, -1, -1, 8]"));
  EXPECT_THAT(Infer("squeeze2(X: fp32[-1, 1, 8]) -> Out, XShape", {{"axes", Ints{1}}}),
              IsOkAndHolds("Out: fp32[-1, 8], XShape: fp32[0, -1, 1, 8]"));
}

TEST(ReshapeTest, OtherNumberOfElementsIsAnError) {
  EXPECT_THAT(
      Infer("reshape2(X: fp32[2, 3]) -> Out, XShape", {{"shape", Ints{7}}}),
      IsInvalidArgument(
          "op 0 (reshape2) attribute shape: expected as many elements as [2, 3], found [7]"));
  EXPECT_THAT(Infer("reshape2(X: fp32[2, 3]) -> Out, XShape", {{"shape", Ints{-1, 4}}}),
              IsInvalidArgument("attribute shape: expected a shape for [2, 3], found [-1, 4]"));
}

TEST(ReshapeTest, TwoUnknownDimensionsAreAnError) {
  EXPECT_THAT(Infer("reshape2(X: fp32[2, 3]) -> Out, XShape", {{"shape", Ints{-1, -1}}}),
              IsInvalidArgument("attribute shape: expected a shape for [2, 3], found [-1, -1]"));
}

TEST(ReshapeTest, ZeroBeyondTheDimensionsIsAnError) {
  EXPECT_THAT(Infer("reshape2(X: fp32[6]) -> Out, XShape", {{"shape", Ints{2, 3, 0}}}),
              IsInvalidArgument("attribute shape: expected a shape for [6], found [2, 3, 0]"));
}

TEST(ReshapeTest, GradientHasTheShapeThatWasKept) {
  EXPECT_THAT(Infer("reshape2_grad(Out@GRAD: fp16[-1, 6], XShape: fp16[0, -1, 2, 3]) -> X@GRAD"),
              IsOkAndHolds("X@GRAD: fp16[-1, 2, 3]"));
}

TEST(ReshapeTest, GradientOfAnotherSizeIsAnError) {
  EXPECT_THAT(
      Infer("reshape2_grad(Out@GRAD: fp32[7], XShape: fp32[0, 2, 3]) -> X@GRAD"),
      IsInvalidArgument(
          "input Out@GRAD (Out@GRAD_0): expected as many elements as [2, 3] of X, found fp32[7]"));
  EXPECT_THAT(Infer("reshape2_grad(Out@GRAD: fp32[7], XShape: fp32[]) -> X@GRAD"),
              IsInvalidArgument("input XShape"));
}

TEST(FlattenTest, JoinsARangeOfDimensions) {
  EXPECT_THAT(Infer("flatten_contiguous_range(X: fp32[-1, 64, 2, 3]) -> Out",
                    {{"start_axis", 1}, {"stop_axis", 3}}),
              IsOkAndHolds("Out: fp32[-1, 384]"));
  EXPECT_THAT(Infer("flatten_contiguous_range(X: fp32[2, 3, 4, 5]) -> Out",
                    {{"start_axis", 1}, {"stop_axis", -2}}),
              IsOkAndHolds("Out: fp32[2, 12, 5]"));
  EXPECT_THAT(Infer("flatten_contiguous_range(X: fp32[-1, 3]) -> Out",
                    {{"start_axis", 0}, {"stop_axis", 1}}),
              IsOkAndHolds("Out: fp32[-1]"));
}

TEST(FlattenTest, ScalarBecomesAVector) {
  EXPECT_THAT(
      Infer("flatten_contiguous_range(X: fp32[]) -> Out", {{"start_axis", 0}, {"stop_axis", 0}}),
      IsOkAndHolds("Out: fp32[1]"));
}

TEST(FlattenTest, RangeThatEndsBeforeItStartsIsAnError) {
  EXPECT_THAT(Infer("flatten_contiguous_range(X: fp32[2, 3]) -> Out",
                    {{"start_axis", 1}, {"stop_axis", 0}}),
              IsInvalidArgument("attribute stop_axis: expected 1 (start_axis) or more, found 0"));
}

}  // namespace
}  // namespace weft::testing
