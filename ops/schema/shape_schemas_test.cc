#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::weft::testing::InferenceCase;
using ::weft::testing::IsOkAndHolds;
using ::weft::testing::StatusIs;

TEST(ReshapeTest, ZeroCopiesADimension) {
  EXPECT_THAT(InferenceCase("reshape2")
                  .In("X", {"fp32[-1, 128, 768]"})
                  .Out("Out")
                  .Out("XShape")
                  .Attr("shape", std::vector<int32_t>{0, 0, 12, 64})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 128, 12, 64]"),
                                       Pair("XShape", "fp32[0, -1, 128, 768]"))));
}

TEST(ReshapeTest, MinusOneTakesWhatIsLeft) {
  EXPECT_THAT(
      InferenceCase("reshape2")
          .In("X", {"fp32[2, 3, 4]"})
          .Out("Out")
          .Out("XShape")
          .Attr("shape", std::vector<int32_t>{-1, 6})
          .Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "fp32[4, 6]"), Pair("XShape", "fp32[0, 2, 3, 4]"))));
  EXPECT_THAT(
      InferenceCase("reshape2")
          .In("X", {"fp32[-1, 4]"})
          .Out("Out")
          .Out("XShape")
          .Attr("shape", std::vector<int32_t>{-1, 8})
          .Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 8]"), Pair("XShape", "fp32[0, -1, 4]"))));
}

TEST(ReshapeTest, EmptyShapeIsAScalar) {
  EXPECT_THAT(InferenceCase("reshape2")
                  .In("X", {"fp32[1, 1]"})
                  .Out("Out")
                  .Out("XShape")
                  .Attr("shape", std::vector<int32_t>{})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[]"), Pair("XShape", "fp32[0, 1, 1]"))));
}

TEST(ReshapeTest, ShapeThatIsComputedIsUnknown) {
  EXPECT_THAT(
      InferenceCase("reshape2").In("Shape", {"int32[2]"}).In("X", {"fp32[6]"}).Out("Out").Infer(),
      IsOkAndHolds(IsEmpty()));
}

TEST(ReshapeTest, OtherNumberOfElementsIsAnError) {
  EXPECT_THAT(
      InferenceCase("reshape2")
          .In("X", {"fp32[2, 3]"})
          .Out("Out")
          .Out("XShape")
          .Attr("shape", std::vector<int32_t>{7})
          .Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr(
              "op 0 (reshape2) attribute shape: expected as many elements as [2, 3], found [7]")));
  EXPECT_THAT(InferenceCase("reshape2")
                  .In("X", {"fp32[2, 3]"})
                  .Out("Out")
                  .Out("XShape")
                  .Attr("shape", std::vector<int32_t>{-1, 4})
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute shape: expected a shape for [2, 3], found [-1, 4]")));
}

TEST(ReshapeTest, TwoUnknownDimensionsAreAnError) {
  EXPECT_THAT(InferenceCase("reshape2")
                  .In("X", {"fp32[2, 3]"})
                  .Out("Out")
                  .Out("XShape")
                  .Attr("shape", std::vector<int32_t>{-1, -1})
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute shape: expected a shape for [2, 3], found [-1, -1]")));
}

TEST(ReshapeTest, ZeroBeyondTheDimensionsIsAnError) {
  EXPECT_THAT(InferenceCase("reshape2")
                  .In("X", {"fp32[6]"})
                  .Out("Out")
                  .Out("XShape")
                  .Attr("shape", std::vector<int32_t>{2, 3, 0})
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute shape: expected a shape for [6], found [2, 3, 0]")));
}

TEST(ReshapeTest, GradientHasTheShapeThatWasKept) {
  EXPECT_THAT(InferenceCase("reshape2_grad")
                  .In("Out@GRAD", {"fp16[-1, 6]"})
                  .In("XShape", {"fp16[0, -1, 2, 3]"})
                  .Out("X@GRAD")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("X@GRAD", "fp16[-1, 2, 3]"))));
}

TEST(ReshapeTest, GradientOfAnotherSizeIsAnError) {
  EXPECT_THAT(InferenceCase("reshape2_grad")
                  .In("Out@GRAD", {"fp32[7]"})
                  .In("XShape", {"fp32[0, 2, 3]"})
                  .Out("X@GRAD")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Out@GRAD (Out@GRAD_0): expected as many elements as [2, 3] "
                                 "of X, found fp32[7]")));
  EXPECT_THAT(InferenceCase("reshape2_grad")
                  .In("Out@GRAD", {"fp32[7]"})
                  .In("XShape", {"fp32[]"})
                  .Out("X@GRAD")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input XShape")));
}

TEST(TransposeTest, PermutesDimensions) {
  EXPECT_THAT(InferenceCase("transpose2")
                  .In("X", {"fp32[-1, 128, 12, 64]"})
                  .Out("Out")
                  .Out("XShape")
                  .Attr("axis", std::vector<int32_t>{0, 2, 1, 3})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 12, 128, 64]"),
                                       Pair("XShape", "fp32[0, -1, 128, 12, 64]"))));
}

TEST(TransposeTest, WhatIsNoPermutationIsAnError) {
  EXPECT_THAT(InferenceCase("transpose2")
                  .In("X", {"fp32[2, 3]"})
                  .Out("Out")
                  .Out("XShape")
                  .Attr("axis", std::vector<int32_t>{0, 0})
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (transpose2) attribute axis: expected a permutation of the "
                                 "dimensions of [2, 3], found [0, 0]")));
  EXPECT_THAT(InferenceCase("transpose2")
                  .In("X", {"fp32[2, 3]"})
                  .Out("Out")
                  .Out("XShape")
                  .Attr("axis", std::vector<int32_t>{0})
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found [0]")));
  EXPECT_THAT(InferenceCase("transpose2")
                  .In("X", {"fp32[2, 3]"})
                  .Out("Out")
                  .Out("XShape")
                  .Attr("axis", std::vector<int32_t>{0, 2})
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute axis: expected an axis of 2 dimensions, found 2")));
}

TEST(TransposeTest, GradientIsTransposedBack) {
  const auto gradient = [](const char* out_grad, const std::vector<int32_t>& axis) {
    return InferenceCase("transpose2_grad")
        .In("Out@GRAD", {out_grad})
        .In("XShape", {"fp32[0, 2, 3]"})
        .Out("X@GRAD")
        .Attr("axis", axis)
        .Infer();
  };
  EXPECT_THAT(gradient("fp32[3, 2]", {1, 0}),
              IsOkAndHolds(ElementsAre(Pair("X@GRAD", "fp32[2, 3]"))));
  EXPECT_THAT(gradient("fp32[3, -1]", {1, 0}),
              IsOkAndHolds(ElementsAre(Pair("X@GRAD", "fp32[2, 3]"))));
  EXPECT_THAT(gradient("fp32[2, 3]", {1, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected dimensions [3, 2], found fp32[2, 3]")));
  EXPECT_THAT(gradient("fp32[3, 2]", {1, 2}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("attribute axis")));
  EXPECT_THAT(gradient("fp32[3, 2]", {1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a permutation of")));
}

TEST(FlattenTest, JoinsARangeOfDimensions) {
  EXPECT_THAT(InferenceCase("flatten_contiguous_range")
                  .In("X", {"fp32[-1, 64, 2, 3]"})
                  .Out("Out")
                  .Attr("start_axis", 1)
                  .Attr("stop_axis", 3)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 384]"))));
  EXPECT_THAT(InferenceCase("flatten_contiguous_range")
                  .In("X", {"fp32[2, 3, 4, 5]"})
                  .Out("Out")
                  .Attr("start_axis", 1)
                  .Attr("stop_axis", -2)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[2, 12, 5]"))));
  EXPECT_THAT(InferenceCase("flatten_contiguous_range")
                  .In("X", {"fp32[-1, 3]"})
                  .Out("Out")
                  .Attr("start_axis", 0)
                  .Attr("stop_axis", 1)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1]"))));
}

TEST(FlattenTest, ScalarBecomesAVector) {
  EXPECT_THAT(InferenceCase("flatten_contiguous_range")
                  .In("X", {"fp32[]"})
                  .Out("Out")
                  .Attr("start_axis", 0)
                  .Attr("stop_axis", 0)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[1]"))));
}

TEST(FlattenTest, RangeThatEndsBeforeItStartsIsAnError) {
  EXPECT_THAT(InferenceCase("flatten_contiguous_range")
                  .In("X", {"fp32[2, 3]"})
                  .Out("Out")
                  .Attr("start_axis", 1)
                  .Attr("stop_axis", 0)
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute stop_axis: expected 1 (start_axis) or more, found 0")));
}

TEST(ConcatTest, AddsUpTheSizesAlongTheAxis) {
  EXPECT_THAT(InferenceCase("concat")
                  .In("X", {"fp32[-1, 8]", "fp32[-1, 13]"})
                  .Out("Out")
                  .Attr("axis", 1)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 21]"))));
  EXPECT_THAT(InferenceCase("concat").In("X", {"fp32[-1, 8]", "fp32[4, 8]"}).Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 8]"))));
}

TEST(ConcatTest, KnownDimensionWinsOverUnknownOne) {
  EXPECT_THAT(InferenceCase("concat")
                  .In("X", {"fp32[-1, 8]", "fp32[4, 8]"})
                  .Out("Out")
                  .Attr("axis", 1)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[4, 16]"))));
}

TEST(ConcatTest, OtherDimensionsMustAgree) {
  EXPECT_THAT(InferenceCase("concat")
                  .In("X", {"fp32[2, 8]", "fp32[3, 8]"})
                  .Out("Out")
                  .Attr("axis", 1)
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (concat) input X (X_1): expected fp32[2, 8] but for "
                                 "dimension 1, found fp32[3, 8]")));
  EXPECT_THAT(InferenceCase("concat")
                  .In("X", {"fp32[2, 8]", "fp32[16]"})
                  .Out("Out")
                  .Attr("axis", 1)
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found fp32[16]")));
}

TEST(ConcatTest, GradientsAreLikeTheInputs) {
  EXPECT_THAT(InferenceCase("concat_grad")
                  .In("Out@GRAD", {"fp32[5]"})
                  .In("X", {"fp32[2]", "fp32[3]"})
                  .Out("X@GRAD", 2)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("X@GRAD", "fp32[2] | fp32[3]"))));
}

TEST(ConcatTest, GradientOfAnotherSizeIsAnError) {
  EXPECT_THAT(
      InferenceCase("concat_grad")
          .In("Out@GRAD", {"fp32[6]"})
          .In("X", {"fp32[2]", "fp32[3]"})
          .Out("X@GRAD", 2)
          .Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("input Out@GRAD (Out@GRAD_0): expected fp32[5] as Out, found fp32[6]")));
}

TEST(SplitTest, IntoEqualParts) {
  EXPECT_THAT(InferenceCase("split").In("X", {"fp32[4, 3]"}).Out("Out", 2).Attr("num", 2).Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[2, 3] | fp32[2, 3]"))));
  EXPECT_THAT(InferenceCase("split").In("X", {"fp32[-1, 3]"}).Out("Out", 2).Attr("num", 2).Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 3] | fp32[-1, 3]"))));
}

TEST(SplitTest, IntoSectionsOfWhichOneTakesTheRest) {
  EXPECT_THAT(InferenceCase("split")
                  .In("X", {"fp32[4, 9]"})
                  .Out("Out", 3)
                  .Attr("axis", 1)
                  .Attr("sections", std::vector<int32_t>{2, -1, 3})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[4, 2] | fp32[4, 4] | fp32[4, 3]"))));
}

TEST(SplitTest, PartsMustBeWhole) {
  EXPECT_THAT(
      InferenceCase("split").In("X", {"fp32[5]"}).Out("Out", 2).Attr("num", 2).Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr(
              "op 0 (split) input X (X_0): expected 2 equal parts along the axis, found fp32[5]")));
  EXPECT_THAT(
      InferenceCase("split")
          .In("X", {"fp32[5]"})
          .Out("Out", 2)
          .Attr("sections", std::vector<int32_t>{2, 2})
          .Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("attribute sections: expected parts of 5 elements, found [2, 2]")));
  EXPECT_THAT(InferenceCase("split")
                  .In("X", {"fp32[5]"})
                  .Out("Out", 2)
                  .Attr("sections", std::vector<int32_t>{-1, -1})
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found [-1, -1]")));
}

TEST(SplitTest, PartsMustBeAsManyAsOutputs) {
  EXPECT_THAT(
      InferenceCase("split").In("X", {"fp32[6]"}).Out("Out", 2).Attr("num", 3).Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr("attribute num: expected 2 parts, as many as Out has variables, found 3")));
  EXPECT_THAT(InferenceCase("split")
                  .In("X", {"fp32[6]"})
                  .Out("Out", 3)
                  .Attr("sections", std::vector<int32_t>{2, 4})
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute sections: expected 3 parts")));
}

}  // namespace
}  // namespace weft
