#include <vector>

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

TEST(SplitTest, NumberOfPartsMustMatchOutputs) {
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
