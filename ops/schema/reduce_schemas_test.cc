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

TEST(ReductionTest, OfAllDimensionsIsAScalar) {
  EXPECT_THAT(InferenceCase("reduce_mean")
                  .In("X", {"fp32[-1, 3]"})
                  .Out("Out")
                  .Attr("reduce_all", true)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[]"))));
  EXPECT_THAT(InferenceCase("reduce_mean")
                  .In("X", {"fp32[-1, 3]"})
                  .Out("Out")
                  .Attr("dim", std::vector<int32_t>{})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[]"))));
  EXPECT_THAT(InferenceCase("mean").In("X", {"fp32[-1, 3]"}).Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[]"))));
}

TEST(ReductionTest, LeavesOutTheReducedDimensions) {
  EXPECT_THAT(InferenceCase("reduce_mean")
                  .In("X", {"fp32[2, 3, 4]"})
                  .Out("Out")
                  .Attr("dim", std::vector<int32_t>{0, -1})
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[3]"))));
  EXPECT_THAT(InferenceCase("reduce_mean")
                  .In("X", {"fp32[2, 3, 4]"})
                  .Out("Out")
                  .Attr("dim", std::vector<int32_t>{1})
                  .Attr("keep_dim", true)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[2, 1, 4]"))));
}

TEST(ReductionTest, SumOfIntegersIsInt64) {
  EXPECT_THAT(InferenceCase("reduce_sum").In("X", {"int32[2]"}).Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "int64[]"))));
  EXPECT_THAT(InferenceCase("reduce_sum").In("X", {"bool[2]"}).Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "int64[]"))));
  EXPECT_THAT(InferenceCase("reduce_mean").In("X", {"int32[2]"}).Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "int32[]"))));
}

TEST(ReductionTest, ElementTypeCanBeAskedFor) {
  EXPECT_THAT(
      InferenceCase("reduce_sum").In("X", {"fp16[2]"}).Out("Out").Attr("out_dtype", 5).Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "fp32[]"))));
}

TEST(ReductionTest, DimensionThatXDoesNotHaveIsAnError) {
  EXPECT_THAT(
      InferenceCase("reduce_mean")
          .In("X", {"fp32[2, 3]"})
          .Out("Out")
          .Attr("dim", std::vector<int32_t>{2})
          .Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr(
                   "op 0 (reduce_mean) attribute dim: expected an axis of 2 dimensions, found 2")));
}

TEST(ReductionTest, GradientIsLikeTheInput) {
  EXPECT_THAT(InferenceCase("reduce_mean_grad")
                  .In("Out@GRAD", {"fp32[]"})
                  .In("X", {"fp32[-1, 1]"})
                  .Out("X@GRAD")
                  .Attr("reduce_all", true)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("X@GRAD", "fp32[-1, 1]"))));
}

TEST(ReductionTest, FullReductionsOfOldProgramsHaveOneDimension) {
  EXPECT_THAT(InferenceCase("reduce_mean_grad")
                  .In("Out@GRAD", {"fp32[1]"})
                  .In("X", {"fp32[-1, 1]"})
                  .Out("X@GRAD")
                  .Attr("reduce_all", true)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("X@GRAD", "fp32[-1, 1]"))));
}

TEST(ReductionTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(
      InferenceCase("reduce_sum_grad")
          .In("Out@GRAD", {"fp32[3]"})
          .In("X", {"fp32[2, 4]"})
          .Out("X@GRAD")
          .Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr(
              "input Out@GRAD (Out@GRAD_0): expected dimensions [4] of X reduced, found fp32[3]")));
}

TEST(ReductionTest, SquaredNormIsOneElement) {
  EXPECT_THAT(InferenceCase("squared_l2_norm").In("X", {"fp32[2, 3]"}).Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[1]"))));
}

}  // namespace
}  // namespace weft
