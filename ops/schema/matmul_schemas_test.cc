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

TEST(MulTest, KeepsRowsOfXAndColumnsOfY) {
  EXPECT_THAT(
      InferenceCase("mul").In("X", {"fp32[-1, 784]"}).In("Y", {"fp32[784, 10]"}).Out("Out").Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 10]"))));
}

TEST(MatMulV2Test, ResultMayBeForcedToFp32) {
  const auto product = [](bool forced) {
    return InferenceCase("matmul_v2")
        .In("X", {"bf16[2, 3]"})
        .In("Y", {"bf16[3, 4]"})
        .Out("Out")
        .Attr("force_fp32_output", forced)
        .Infer();
  };
  EXPECT_THAT(product(true), IsOkAndHolds(ElementsAre(Pair("Out", "fp32[2, 4]"))));
  EXPECT_THAT(product(false), IsOkAndHolds(ElementsAre(Pair("Out", "bf16[2, 4]"))));
}

TEST(MulTest, FlattensBothSides) {
  EXPECT_THAT(InferenceCase("mul")
                  .In("X", {"fp32[2, 3, 4, 5]"})
                  .In("Y", {"fp32[4, 5, 6]"})
                  .Out("Out")
                  .Attr("x_num_col_dims", 2)
                  .Attr("y_num_col_dims", 2)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[2, 3, 6]"))));
}

TEST(MulTest, InnerSizesMustAgree) {
  EXPECT_THAT(
      InferenceCase("mul")
          .In("X", {"fp32[2, 16, 5, 5]"})
          .In("Y", {"fp32[300, 120]"})
          .Out("Out")
          .Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr(
              "input Y (Y_0): expected 400 rows, as many as X has columns, found fp32[300, 120]")));
}

TEST(MulTest, SplitOutsideOfTheDimensionsIsAnError) {
  EXPECT_THAT(
      InferenceCase("mul")
          .In("X", {"fp32[2, 3]"})
          .In("Y", {"fp32[3, 4]"})
          .Out("Out")
          .Attr("x_num_col_dims", 2)
          .Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr(
              "op 0 (mul) attribute x_num_col_dims: expected 1 to 2 - 1 dimensions, found 2")));
  EXPECT_THAT(InferenceCase("mul")
                  .In("X", {"fp32[2, 3]"})
                  .In("Y", {"fp32[3, 4]"})
                  .Out("Out")
                  .Attr("y_num_col_dims", 0)
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("attribute y_num_col_dims")));
}

TEST(MulTest, ElementTypesMustAgree) {
  EXPECT_THAT(
      InferenceCase("mul").In("X", {"fp32[2, 3]"}).In("Y", {"fp16[3, 4]"}).Out("Out").Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("input Y (Y_0): expected fp32 as X is")));
}

TEST(MulTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(
      InferenceCase("mul_grad")
          .In("Out@GRAD", {"fp32[2, 5]"})
          .In("X", {"fp32[2, 3]"})
          .In("Y", {"fp32[3, 4]"})
          .Out("X@GRAD")
          .Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("input Out@GRAD (Out@GRAD_0): expected fp32[2, 4], found fp32[2, 5]")));
}

TEST(MatMulTest, MultipliesMatricesOfABatch) {
  EXPECT_THAT(InferenceCase("matmul_v2")
                  .In("X", {"fp32[-1, 12, 128, 64]"})
                  .In("Y", {"fp32[-1, 12, 64, 128]"})
                  .Out("Out")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 12, 128, 128]"))));
}

TEST(MatMulTest, TransposesTheLastTwoDimensions) {
  EXPECT_THAT(InferenceCase("matmul_v2")
                  .In("X", {"fp32[3, 2]"})
                  .In("Y", {"fp32[4, 3]"})
                  .Out("Out")
                  .Attr("trans_x", true)
                  .Attr("trans_y", true)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[2, 4]"))));
}

TEST(MatMulTest, BroadcastsTheBatch) {
  EXPECT_THAT(InferenceCase("matmul_v2")
                  .In("X", {"fp32[7, 1, 2, 3]"})
                  .In("Y", {"fp32[5, 3, 4]"})
                  .Out("Out")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[7, 5, 2, 4]"))));
  EXPECT_THAT(InferenceCase("matmul_v2")
                  .In("X", {"fp32[-1, 128, 768]"})
                  .In("Y", {"fp32[768, 3072]"})
                  .Out("Out")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 128, 3072]"))));
}

TEST(MatMulTest, VectorsLoseTheirDimension) {
  EXPECT_THAT(
      InferenceCase("matmul_v2").In("X", {"fp32[3]"}).In("Y", {"fp32[3]"}).Out("Out").Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "fp32[]"))));
  EXPECT_THAT(
      InferenceCase("matmul_v2").In("X", {"fp32[2, 3]"}).In("Y", {"fp32[3]"}).Out("Out").Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "fp32[2]"))));
  EXPECT_THAT(
      InferenceCase("matmul_v2").In("X", {"fp32[3]"}).In("Y", {"fp32[5, 3, 4]"}).Out("Out").Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "fp32[5, 4]"))));
}

TEST(MatMulTest, InnerSizesMustAgree) {
  EXPECT_THAT(
      InferenceCase("matmul_v2").In("X", {"fp32[2, 3]"}).In("Y", {"fp32[4, 5]"}).Out("Out").Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr("input Y (Y_0): expected 3 rows, as many as X has columns, found fp32[4, 5]")));
}

TEST(MatMulTest, BatchesMustFit) {
  EXPECT_THAT(InferenceCase("matmul_v2")
                  .In("X", {"fp32[7, 2, 3]"})
                  .In("Y", {"fp32[5, 3, 4]"})
                  .Out("Out")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected batch dimensions that broadcast with [7] of X")));
}

TEST(MatMulTest, ScalarIsAnError) {
  EXPECT_THAT(
      InferenceCase("matmul_v2").In("X", {"fp32[]"}).In("Y", {"fp32[3]"}).Out("Out").Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("input X (X_0): expected at least one dimension, found fp32[]")));
}

}  // namespace
}  // namespace weft
