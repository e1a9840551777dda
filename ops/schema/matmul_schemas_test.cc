#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(MulTest, KeepsRowsOfXAndColumnsOfY) {
  EXPECT_THAT(Infer("mul(X: fp32[-1, 784], Y: fp32[784, 10]) -> Out"),
              IsOkAndHolds("Out: fp32[-1, 10]"));
}

TEST(MatMulV2Test, ResultMayBeForcedToFp32) {
  const auto product = [](bool forced) {
    return Infer("matmul_v2(X: bf16[2, 3], Y: bf16[3, 4]) -> Out", {{"force_fp32_output", forced}});
  };
  EXPECT_THAT(product(true), IsOkAndHolds("Out: fp32[2, 4]"));
  EXPECT_THAT(product(false), IsOkAndHolds("Out: bf16[2, 4]"));
}

TEST(MulTest, FlattensBothSides) {
  EXPECT_THAT(Infer("mul(X: fp32[2, 3, 4, 5], Y: fp32[4, 5, 6]) -> Out",
                    {{"x_num_col_dims", 2}, {"y_num_col_dims", 2}}),
              IsOkAndHolds("Out: fp32[2, 3, 6]"));
}

TEST(MulTest, InnerSizesMustAgree) {
  EXPECT_THAT(
      Infer("mul(X: fp32[2, 16, 5, 5], Y: fp32[300, 120]) -> Out"),
      IsInvalidArgument(
          "input Y (Y_0): expected 400 rows, as many as X has columns, found fp32[300, 120]"));
}

TEST(MulTest, SplitOutsideOfTheDimensionsIsAnError) {
  EXPECT_THAT(Infer("mul(X: fp32[2, 3], Y: fp32[3, 4]) -> Out", {{"x_num_col_dims", 2}}),
              IsInvalidArgument(
                  "op 0 (mul) attribute x_num_col_dims: expected 1 to 2 - 1 dimensions, found 2"));
  EXPECT_THAT(Infer("mul(X: fp32[2, 3], Y: fp32[3, 4]) -> Out", {{"y_num_col_dims", 0}}),
              IsInvalidArgument("attribute y_num_col_dims"));
}

TEST(MulTest, ElementTypesMustAgree) {
  EXPECT_THAT(Infer("mul(X: fp32[2, 3], Y: fp16[3, 4]) -> Out"),
              IsInvalidArgument("input Y (Y_0): expected fp32 as X is"));
}

TEST(MulTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(
      Infer("mul_grad(Out@GRAD: fp32[2, 5], X: fp32[2, 3], Y: fp32[3, 4]) -> X@GRAD"),
      IsInvalidArgument("input Out@GRAD (Out@GRAD_0): expected fp32[2, 4], found fp32[2, 5]"));
}

TEST(MatMulTest, MultipliesMatricesOfABatch) {
  EXPECT_THAT(Infer("matmul_v2(X: fp32[-1, 12, 128, 64], Y: fp32[-1, 12, 64, 128]) -> Out"),
              IsOkAndHolds("Out: fp32[-1, 12, 128, 128]"));
}

TEST(MatMulTest, TransposesTheLastTwoDimensions) {
  EXPECT_THAT(Infer("matmul_v2(X: fp32[3, 2], Y: fp32[4, 3]) -> Out",
                    {{"trans_x", true}, {"trans_y", true}}),
              IsOkAndHolds("Out: fp32[2, 4]"));
}

TEST(MatMulTest, BroadcastsTheBatch) {
  EXPECT_THAT(Infer("matmul_v2(X: fp32[7, 1, 2, 3], Y: fp32[5, 3, 4]) -> Out"),
              IsOkAndHolds("Out: fp32[7, 5, 2, 4]"));
  EXPECT_THAT(Infer("matmul_v2(X: fp32[-1, 128, 768], Y: fp32[768, 3072]) -> Out"),
              IsOkAndHolds("Out: fp32[-1, 128, 3072]"));
}

TEST(MatMulTest, VectorsLoseTheirDimension) {
  EXPECT_THAT(Infer("matmul_v2(X: fp32[3], Y: fp32[3]) -> Out"), IsOkAndHolds("Out: fp32[]"));
  EXPECT_THAT(Infer("matmul_v2(X: fp32[2, 3], Y: fp32[3]) -> Out"), IsOkAndHolds("Out: fp32[2]"));
  EXPECT_THAT(Infer("matmul_v2(X: fp32[3], Y: fp32[5, 3, 4]) -> Out"),
              IsOkAndHolds("Out: fp32[5, 4]"));
}

TEST(MatMulTest, InnerSizesMustAgree) {
  EXPECT_THAT(Infer("matmul_v2(X: fp32[2, 3], Y: fp32[4, 5]) -> Out"),
              IsInvalidArgument(
                  "input Y (Y_0): expected 3 rows, as many as X has columns, found fp32[4, 5]"));
}

TEST(MatMulTest, BatchesMustFit) {
  EXPECT_THAT(Infer("matmul_v2(X: fp32[7, 2, 3], Y: fp32[5, 3, 4]) -> Out"),
              IsInvalidArgument("expected batch dimensions that broadcast with [7] of X"));
}

TEST(MatMulTest, ScalarIsAnError) {
  EXPECT_THAT(Infer("matmul_v2(X: fp32[], Y: fp32[3]) -> Out"),
              IsInvalidArgument("input X (X_0): expected at least one dimension, found fp32[]"));
}

}  // namespace
}  // namespace weft::testing
