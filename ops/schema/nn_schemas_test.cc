#include <string>

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

TEST(SoftmaxTest, KeepsTheType) {
  EXPECT_THAT(InferenceCase("softmax").In("X", {"fp32[-1, 3]"}).Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 3]"))));
}

TEST(SoftmaxTest, AxisThatXDoesNotHaveIsAnError) {
  EXPECT_THAT(
      InferenceCase("softmax").In("X", {"fp32[-1, 3]"}).Out("Out").Attr("axis", -3).Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr("op 0 (softmax) attribute axis: expected an axis of 2 dimensions, found -3")));
  EXPECT_THAT(InferenceCase("softmax_grad")
                  .In("Out", {"fp32[2]"})
                  .In("Out@GRAD", {"fp32[2]"})
                  .Out("X@GRAD")
                  .Attr("axis", 1)
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("attribute axis")));
}

TEST(DropoutTest, MaskIsBytes) {
  EXPECT_THAT(InferenceCase("dropout").In("X", {"fp16[-1, 3]"}).Out("Mask").Out("Out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("Mask", "uint8[-1, 3]"), Pair("Out", "fp16[-1, 3]"))));
}

TEST(DropoutTest, GradientNeedsAMaskOfItsShape) {
  EXPECT_THAT(
      InferenceCase("dropout_grad")
          .In("Mask", {"uint8[4]"})
          .In("Out@GRAD", {"fp32[3]"})
          .Out("X@GRAD")
          .Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr("input Mask (Mask_0): expected dimensions [3] of Out@GRAD, found uint8[4]")));
}

TEST(LookupTableTest, GivesARowForEachId) {
  EXPECT_THAT(InferenceCase("lookup_table_v2")
                  .In("Ids", {"int64[-1, 128]"})
                  .In("W", {"fp32[500, 64]"})
                  .Out("Out")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 128, 64]"))));
}

TEST(LookupTableTest, DenseGradientIsLikeTheTable) {
  EXPECT_THAT(InferenceCase("lookup_table_v2_grad")
                  .In("Ids", {"int64[-1]"})
                  .In("Out@GRAD", {"fp32[-1, 64]"})
                  .In("W", {"fp32[500, 64]"})
                  .Out("W@GRAD")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("W@GRAD", "fp32[500, 64]"))));
}

TEST(LookupTableTest, SparseGradientIsRowsOfTheTable) {
  EXPECT_THAT(InferenceCase("lookup_table_v2_grad")
                  .In("Ids", {"int64[-1]"})
                  .In("Out@GRAD", {"fp32[-1, 64]"})
                  .In("W", {"fp32[500, 64]"})
                  .Out("W@GRAD")
                  .Attr("is_sparse", true)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("W@GRAD", "rows fp32[500, 64]"))));
}

TEST(LookupTableTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(
      InferenceCase("lookup_table_v2_grad")
          .In("Ids", {"int64[-1]"})
          .In("Out@GRAD", {"fp32[-1, 65]"})
          .In("W", {"fp32[500, 64]"})
          .Out("W@GRAD")
          .Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr(
              "input Out@GRAD (Out@GRAD_0): expected fp32[-1, 64] as Out, found fp32[-1, 65]")));
}

TEST(LookupTableTest, IdsMustBeIntegers) {
  EXPECT_THAT(
      InferenceCase("lookup_table_v2")
          .In("Ids", {"fp32[2]"})
          .In("W", {"fp32[500, 64]"})
          .Out("Out")
          .Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("input Ids (Ids_0): expected int64 or int32 row numbers, found fp32[2]")));
}

TEST(LookupTableTest, TableMustHaveRowsAndColumns) {
  EXPECT_THAT(
      InferenceCase("lookup_table_v2")
          .In("Ids", {"int64[2]"})
          .In("W", {"fp32[500]"})
          .Out("Out")
          .Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("input W (W_0): expected a table: rows and columns, found fp32[500]")));
}

}  // namespace
}  // namespace weft
