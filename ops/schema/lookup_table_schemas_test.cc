#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(LookupTableTest, GivesARowForEachId) {
  EXPECT_THAT(Infer("lookup_table_v2(Ids: int64[-1, 128], W: fp32[500, 64]) -> Out"),
              IsOkAndHolds("Out: fp32[-1, 128, 64]"));
}

TEST(LookupTableTest, DenseGradientIsLikeTheTable) {
  EXPECT_THAT(Infer("lookup_table_v2_grad(Ids: int64[-1], Out@GRAD: fp32[-1, 64], W: fp32[500, "
                    "64]) -> W@GRAD"),
              IsOkAndHolds("W@GRAD: fp32[500, 64]"));
}

TEST(LookupTableTest, SparseGradientIsRowsOfTheTable) {
  EXPECT_THAT(Infer("lookup_table_v2_grad(Ids: int64[-1], Out@GRAD: fp32[-1, 64], W: fp32[500, "
                    "64]) -> W@GRAD",
                    {{"is_sparse", true}}),
              IsOkAndHolds("W@GRAD: rows fp32[500, 64]"));
}

TEST(LookupTableTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(Infer("lookup_table_v2_grad(Ids: int64[-1], Out@GRAD: fp32[-1, 65], W: fp32[500, "
                    "64]) -> W@GRAD"),
              IsInvalidArgument(
                  "input Out@GRAD (Out@GRAD_0): expected fp32[-1, 64] as Out, found fp32[-1, 65]"));
}

TEST(LookupTableTest, IdsMustBeIntegers) {
  EXPECT_THAT(
      Infer("lookup_table_v2(Ids: fp32[2], W: fp32[500, 64]) -> Out"),
      IsInvalidArgument("input Ids (Ids_0): expected int64 or int32 row numbers, found fp32[2]"));
}

TEST(LookupTableTest, TableMustHaveRowsAndColumns) {
  EXPECT_THAT(
      Infer("lookup_table_v2(Ids: int64[2], W: fp32[500]) -> Out"),
      IsInvalidArgument("input W (W_0): expected a table: rows and columns, found fp32[500]"));
}

}  // namespace
}  // namespace weft::testing
