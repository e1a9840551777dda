#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(SumTest, OfTensorsIsATensor) {
  EXPECT_THAT(Infer("sum(X: fp32[-1, 3] | fp32[2, 3]) -> Out"), IsOkAndHolds("Out: fp32[2, 3]"));
}

TEST(SumTest, OfRowsIsRows) {
  EXPECT_THAT(Infer("sum(X: rows fp32[9, 3] | rows fp32[9, 3]) -> Out"),
              IsOkAndHolds("Out: rows fp32[9, 3]"));
}

TEST(SumTest, OfRowsAndATensorIsATensor) {
  EXPECT_THAT(Infer("sum(X: rows fp32[9, 3] | fp32[9, 3]) -> Out"),
              IsOkAndHolds("Out: fp32[9, 3]"));
}

TEST(SumTest, OfDifferentShapesIsAnError) {
  EXPECT_THAT(Infer("sum(X: fp32[2, 3] | fp32[2, 4]) -> Out"),
              IsInvalidArgument(
                  "op 0 (sum) input X (X_1): expected fp32[2, 3] as the others, found fp32[2, 4]"));
}

TEST(ScaleTest, KeepsTheTypeAlsoOfRows) {
  EXPECT_THAT(Infer("scale(X: rows fp32[9, 3]) -> Out", {{"scale", 0.5f}}),
              IsOkAndHolds("Out: rows fp32[9, 3]"));
}

}  // namespace
}  // namespace weft::testing
