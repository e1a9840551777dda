#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(ReductionTest, OfAllDimensionsIsAScalar) {
  EXPECT_THAT(Infer("reduce_mean(X: fp32[-1, 3]) -> Out", {{"reduce_all", true}}),
              IsOkAndHolds("Out: fp32[]"));
  EXPECT_THAT(Infer("reduce_mean(X: fp32[-1, 3]) -> Out", {{"dim", Ints{}}}),
              IsOkAndHolds("Out: fp32[]"));
  EXPECT_THAT(Infer("mean(X: fp32[-1, 3]) -> Out"), IsOkAndHolds("Out: fp32[]"));
}

TEST(ReductionTest, LeavesOutTheReducedDimensions) {
  EXPECT_THAT(Infer("reduce_mean(X: fp32[2, 3, 4]) -> Out", {{"dim", Ints{0, -1}}}),
              IsOkAndHolds("Out: fp32[3]"));
  EXPECT_THAT(Infer("reduce_mean(X: fp32[2, 3, 4]) -> Out", {{"dim", Ints{1}}, {"keep_dim", true}}),
              IsOkAndHolds("Out: fp32[2, 1, 4]"));
}

TEST(ReductionTest, SumOfIntegersIsInt64) {
  EXPECT_THAT(Infer("reduce_sum(X: int32[2]) -> Out"), IsOkAndHolds("Out: int64[]"));
  EXPECT_THAT(Infer("reduce_sum(X: bool[2]) -> Out"), IsOkAndHolds("Out: int64[]"));
  EXPECT_THAT(Infer("reduce_mean(X: int32[2]) -> Out"), IsOkAndHolds("Out: int32[]"));
}

TEST(ReductionTest, ElementTypeCanBeAskedFor) {
  EXPECT_THAT(Infer("reduce_sum(X: fp16[2]) -> Out", {{"out_dtype", 5}}),
              IsOkAndHolds("Out: fp32[]"));
}

TEST(ReductionTest, DimensionThatXDoesNotHaveIsAnError) {
  EXPECT_THAT(Infer("reduce_mean(X: fp32[2, 3]) -> Out", {{"dim", Ints{2}}}),
              IsInvalidArgument(
                  "op 0 (reduce_mean) attribute dim: expected an axis of 2 dimensions, found 2"));
}

TEST(ReductionTest, GradientIsLikeTheInput) {
  EXPECT_THAT(
      Infer("reduce_mean_grad(Out@GRAD: fp32[], X: fp32[-1, 1]) -> X@GRAD", {{"reduce_all", true}}),
      IsOkAndHolds("X@GRAD: fp32[-1, 1]"));
}

TEST(ReductionTest, FullReductionsOfOldProgramsHaveOneDimension) {
  EXPECT_THAT(Infer("reduce_mean_grad(Out@GRAD: fp32[1], X: fp32[-1, 1]) -> X@GRAD",
                    {{"reduce_all", true}}),
              IsOkAndHolds("X@GRAD: fp32[-1, 1]"));
}

TEST(ReductionTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(
      Infer("reduce_sum_grad(Out@GRAD: fp32[3], X: fp32[2, 4]) -> X@GRAD"),
      IsInvalidArgument(
          "input Out@GRAD (Out@GRAD_0): expected dimensions [4] of X reduced, found fp32[3]"));
}

TEST(ReductionTest, SquaredNormIsOneElement) {
  EXPECT_THAT(Infer("squared_l2_norm(X: fp32[2, 3]) -> Out"), IsOkAndHolds("Out: fp32[1]"));
}

}  // namespace
}  // namespace weft::testing
