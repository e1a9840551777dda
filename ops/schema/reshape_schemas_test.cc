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

TEST(ReshapeTest, MinusOneIsTheRemainder) {
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

}  // namespace
}  // namespace weft
